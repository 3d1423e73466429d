"""Weights on their way from the learner to the generators.

    learner                             store                            generator
    -------                             -----                            ---------
    Rank.publish
      publish_weights
        store.publish(version) -------> files in a staging folder,
                                        manifest.json, one rename;
                                        older versions are retired
    Learner (loop)
      buffer.announce(version) -------- Redis -------------------------> WeightLoader.load_newest
                                        a pin keeps the version <-------   store.fetch(version)
                                        files, manifest ---------------->  verify checksums
                                                                           engine.load(version, folder)
                                        the pin is gone <---------------   end of the fetch

A store has ``publish``, ``fetch`` and ``versions`` (``base.WeightStore``); a ``Location`` names one:

    folder        DiskWeights   a folder that both sides see
    http(s) URL   HttpWeights   a WeightServer in front of such a folder, for generators that do not see it
    ray:NAME      RayWeights    Ray's object store (in actors/weights: this room does not import Ray)

``DeltaWeights`` wraps any of them and transfers differences (``buffer.weights.full_every``).

When things are deleted:

    staging folder   when publish ends, successful or not; that of a killed publisher when the run ends
    version          retired by the publish that makes it older than the newest ``keep``; its files go with
                     the first publish that finds no live pin on it; a delta keeps its base
    pin              when its fetch ends; one that is not released dies after ``pin_seconds``
    download         as a version, in the cache of its process; the whole cache at ``close``, and after a kill
                     by another process's ``scratch.sweep``
    everything       when the run ends

Start at ``base``, then ``disk``. May import config, secret_file and records of the buffer.
"""
