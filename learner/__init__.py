"""The learner: takes full batches from the buffer, updates the policy, publishes its weights.

    buffer               coordinator (driver, no torch)            ranks (torch, DeepSpeed)

    pending groups ----> claim       a full batch of step k
                         plan        advantages, alpha, T
                         fetch ----------------------------------> read the bodies of own groups
                         update ---------------------------------> forward, backward per micro-batch;
                                                                   step: reduce, clip, AdamW
                         publish --------------------------------> gather; rank 0 writes k + 1
    announced k + 1 <--- announce    generators load k + 1
    trained groups <---- commit      then one StepReport
                         checkpoint -----------------------------> save, every n steps

Start at ``coordinator/loop.py`` for a step, at ``recipe/magic.py`` for the loss. Sub-packages, each importing
only from those after it: coordinator, compute, checkpoint, recipe. Imports buffer and rewards, never actors.
"""
