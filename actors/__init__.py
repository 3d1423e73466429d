"""Makes rollouts: generators sample groups of responses, grade and select them, and push the useful ones.

    buffer: prompts                       rewards: graders
        |                                     ^     |
        | lease, if admission allows          |     v
        v                                     |     |
    Generator ----> GroupTask ----> sample ---+-- grade ---> select ---+---> push ----> buffer: rollouts
        ^                             |                                |
        |                             v                                +---> reject, drop (counted, no body)
        |                          Engine (vLLM)
        |                             ^
        |                             | load, between two decode steps
        |                             |
    WeightLoader <--- fetch --- weights store <--- publish --- learner
        ^
        | announced version (buffer)

    Fleet, in the driver: starts Generators as Ray actors, polls their reports, replaces dead and stuck ones,
    follows the target number. `magicrl generator` runs the same Generator in a plain process.

Imports `buffer` and `rewards`, never `learner`. Sub-packages, each imports only from later ones: fleet,
generator, sampling, engines, weights. A reader starts at generator/generator.py.
"""
