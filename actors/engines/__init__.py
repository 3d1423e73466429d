"""Engines sample tokens: vLLM, a scripted one for tests, and a thinking budget around either.

Imports records of `buffer` and settings only. A reader starts at base.py, the protocol; new weights enter at
VllmEngine.load and are switched inside vLLM's worker by vllm_worker.py.
"""
