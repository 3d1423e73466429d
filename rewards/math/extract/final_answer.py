"""The final answer of a response: the last box after the thought, or a clear statement."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rewards.math.notation.split import brace_pairs

BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
EMPTY = re.compile(r"(?:\s|[$~]|\\[,;:! ]|\\q?quad|\\text\{\s*\})*")
"""The content of a box without an answer."""
JOINER = re.compile(
    r"(?:[\s,;、$]|\\q?quad)*(?:\\text\{\s*)?(?:and|or|和|或|与)?\s*\}?(?:[\s,;、$]|\\q?quad)*"
    r"(?:\\?[a-zA-Z](?:_\{?\w+\}?)?\s*=\s*)?[\s$]*"
)
MARKER = re.compile(
    r"(?:\b(?:final\s+)?answer(?:\s+(?:is|should\s+be|must\s+be|equals)\b|\s*[:：=]|\s*(?=\$|\\\(|\\\[))"
    r"|\bans\s*[:：=]|最?[终后]?答案[是为]?\s*[:：]?|####|[故应此以]应?选择?\s*[:：]?(?=\s*[（(]?[A-J])"
    r"|(?:^|\n)[ \t#*]*(?:final\s+)?answer[ \t*]*\n)"
    r"[\s:：*]*(?:\\\[|\\\(|\$\$?)?",
    re.I,
)
MARKER_LINE = re.compile(
    r"^[ \t#*>]*(?:(?:final\s+)?answer\s*\**\s*[:：]|最?[终后]?答案\s*[:：])[\s*]*(.+)$", re.I | re.M
)
CONCLUDES = re.compile(
    r"^\W*(?:(?:(?:so|thus|therefore|hence|then|finally|consequently|in\s+(?:conclusion|total)|the)\b|因此|所以|故|综上)"
    r".{0,200}?(?:\b(?:is|are|equals|be|get|obtain|gives?|yields?)\b|=|为|是)"
    r"|(?:[^.$]{0,80},\s*)?we\s+(?:get|obtain|find)\b|we\s+have\b)"
    r"\s*:?\s*(?P<answer>.+)$",
    re.I | re.S,
)
SENTENCE_END = re.compile(
    r"(?:(?<=[^A-Z0-9.])|(?<=\d)|(?<=\b[A-Z]))[.!?](?:\s+|$)|[。！？]|\n\s*\n|\n(?=\s*[-*#])"
)
CLAUSE_END = re.compile(
    r",?\s+(?:because|since|as\s|which|so\s|where\s+we)|[,，]\s*(?:因为|其中)|(?<!\.)\.\s*$", re.I
)
ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.S | re.I)
END_OF_TURN = re.compile(
    r"<\|(?:im_end|im_start|endoftext|eot_id|end|user|assistant)\|>|</s>|<eos>|<end_of_turn>"
)
CHATTER = re.compile(r"\s*I hope (?:it|this) is correct\.?\s*", re.I)
ADVERB = re.compile(r"^(?:therefore|thus|then|hence|simply|just|clearly|indeed|exactly|that)[\s,:]+", re.I)
NAMED_AFTERWARDS = re.compile(
    r"(?:^|\s)(?P<answer>\$[^$]+\$|\\\(.+?\\\)|\\\[.+?\\\])\s+is\s+(?:the|our)\s+(?:final\s+|correct\s+)?"
    r"(?:answer|solution|result)\b[.!]?$",
    re.I | re.S,
)
DISPLAYED = re.compile(r"[:：]\s*(?P<answer>\$\$?[^$]+\$\$?|\\\(.+?\\\)|\\\[.+?\\\])[.。]?$", re.S)
PURE = re.compile(r"(\$\$?)[^$]+\1|\\\[(?:(?!\\\]).)+\\\]|\\\((?:(?!\\\)).)+\\\)", re.S)
NEGATED = re.compile(
    r"(?:\b(?:not|never|cannot\s+be)|n't(?:\s+be)?|不是)\s*(?:equal\s+to\s*)?[\s$\\(\[]*$", re.I
)
"""A negation in front of a box."""
CHOSEN = re.compile(
    r"\b(?:option|choice|answer)\s+\(?(?P<answer>[A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right)\b", re.I
)
OPEN_THOUGHT, CLOSED_THOUGHT = (re.compile(tag, re.I) for tag in ("<think>", "</think>"))
RETRACTED = re.compile(
    r"\b(?:wait|actually|no|oops|hm+)\b[\s,.!-]*(?:that|this|it)(?:['’]s|\s+is|\s+was)\s+"
    r"(?:wrong|incorrect|not\s+(?:right|correct)|a\s+mistake)\b(?!.*(?:answer|=|答案))",
    re.I | re.S,
)
"""A retraction after an answer, without another answer."""
BARE = 100
"""Longest response that may be nothing but the answer, in characters."""
TAIL = 4000
"""Length of the end of a response that is searched for a stated answer, in characters."""


def after_thought(response: str) -> str | None:
    """Return the text after the last ``</think>``; None if a thought is never closed."""
    text = CLOSED_THOUGHT.split(response)[-1]
    return None if OPEN_THOUGHT.search(text) else text


def final_answer(response: str, *, boxed_only: bool, truncated: bool = False) -> str | None:
    """Return the final answer's text as written; None if there is none.

    A labelled line ("**Answer: D**") after the last box replaces it. Statements of a truncated response
    do not count: their end may be missing.
    """
    text = after_thought(_first_turn(response))
    if text is None:
        return None
    boxes = list(_boxes(text))
    if RETRACTED.search(text[boxes[-1][1] if boxes else 0 :][-TAIL:]):
        return None
    if boxes and NEGATED.search(text[max(boxes[-1][0] - 40, 0) : boxes[-1][0]]):
        return None
    if boxed_only or truncated:
        return _joined(text, boxes)
    if boxes:
        return _labelled(text[boxes[-1][1] :]) or _joined(text, boxes)
    return _stated(text[-TAIL:])


def _first_turn(response: str) -> str:
    """Return the text before an invented next turn."""
    parts = [part for part in END_OF_TURN.split(response) if part.strip() not in ("", "assistant")]
    return parts[0] if parts else ""


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, content) of each outermost box; the content of an unclosed box is empty."""
    end, closing = 0, brace_pairs(text) if BOX.search(text) else {}
    for match in BOX.finditer(text):
        if match.start() < end:
            continue
        close = closing.get(match.end() - 1)
        if close is None:
            yield match.start(), match.end(), ""
            continue
        end = close + 1
        content = text[match.end() : close]
        if inner := [box for _, _, box in _boxes(content)]:
            content = inner[-1] if BOX.match(content.strip()) else content.replace("\\boxed", "")
        yield match.start(), end, content


def _joined(text: str, boxes: list[tuple[int, int, str]]) -> str | None:
    """Return the last box, with those before it that only a comma or an "and" separates from it.

    An empty or unclosed last box is no answer, whatever stands in the boxes before it.
    """
    if not boxes or EMPTY.fullmatch(boxes[-1][2]):
        return None
    answers = [boxes[-1][2]]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        between = text[before[1] : after[0]]
        if len(between) > 40 or not JOINER.fullmatch(between) or EMPTY.fullmatch(before[2]):
            break
        answers.insert(0, before[2])
    return answers[0] if len(set(answers)) == 1 else " , ".join(answers)


def _labelled(text: str) -> str | None:
    lines = MARKER_LINE.findall(text)
    return _clean(lines[-1]) if lines else None


def _stated(text: str) -> str | None:
    """Return an answer without a box: tagged, after the last marker, or in the concluding sentence."""
    if tagged := ANSWER_TAG.findall(text):
        return _clean(tagged[-1])
    text = CHATTER.sub(" ", text)
    markers = list(MARKER.finditer(text))
    if markers:
        statement = text[markers[-1].end() :].strip()
        for opener in ("$$", "$", "\\(", "\\["):
            if markers[-1].group().endswith(opener):
                statement = opener + statement
                break
        statement = _sentence(statement)
        sentence = CONCLUDES.match(statement) if re.match(r"the\s", statement, re.I) else None
        return _clean(_last_value(sentence["answer"]) if sentence else statement)
    sentences = [part.strip() for part in SENTENCE_END.split(text) if part and part.strip()]
    if not sentences:
        return None
    if (
        found := NAMED_AFTERWARDS.search(sentences[-1])
        or DISPLAYED.search(sentences[-1])
        or CHOSEN.search(sentences[-1])
    ):
        return _clean(found["answer"])
    if conclusion := CONCLUDES.match(sentences[-1]):
        return _clean(_last_value(conclusion["answer"]))
    if PURE.fullmatch(text.strip()):
        return _clean(text)
    bare = len(sentences) == 1 and len(text) <= BARE and not re.search(r"[^\W\d_]{2,} [^\W\d_]{2,}", text)
    return _clean(sentences[0]) if bare else None


def _sentence(text: str) -> str:
    end = SENTENCE_END.search(text)
    if end and end.group().startswith("?"):
        return ""  # a question is no statement
    return (text[: end.start()] if end and end.start() else text).split("\n", 1)[0]


def _last_value(text: str) -> str:
    return re.split(r"\b(?:is|are|equals)\b|为|是", text)[-1]


def _clean(text: str) -> str | None:
    text = CLAUSE_END.split(text.strip().strip("*`").strip(), maxsplit=1)[0].strip()
    text = ADVERB.sub("", text.strip("*`").strip())
    if text.count("$") % 2:
        text = text.replace("$", "")
    math = re.match(r"^(\$\$?|\\\(|\\\[)(.+?)(\$\$?|\\\)|\\\])(?=$|[\s,.;])", text, re.S)
    if math and not re.search(r"\w", text[math.end() :]):
        text = math.group(2)
    return re.sub(r"(?:(?<!\.)\.|[。,;\s])+$", "", text) or None
