"""How processes of a run open its published weights, and the store for clusters without a shared folder.

``locate.open_weights`` is the entry: it opens any ``Location``. ``ray_store`` is the WeightStore in Ray's
object store, imported only where it is used. Both build on ``buffer.weights``, which has the whole picture.
May import nothing else of the actors.
"""
