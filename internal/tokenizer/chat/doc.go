// Package chat renders conversations with the chat template of a checkpoint:
// the Jinja program, in chat_template.jinja or tokenizer_config.json, that turns
// messages into the text a model was trained on.
//
// The measure is what transformers makes of the same template with jinja2:
// the same text, byte for byte, since one space more is other tokens. Golden
// data made with jinja2 pins that down.
//
// # How it works
//
// Templates run on the engine of github.com/ardanlabs/jinja. That engine differs
// from jinja2 in places that chat templates do reach: white space around
// adjacent tags, variables set inside loops, the filters dictsort and map, numbers in
// tojson, None and 1.0 in output. So a template is first rewritten
// (prepare.go) into one that says the same in a way that leaves the engine no
// room: text becomes string literals with white space already settled, filters,
// tests and methods become functions of this package (functions.go), and what neither
// side can do is an error that names the construct and its line, at load time.
//
// Left to the engine, and looser than jinja2: operators (1.0 in "~" gives 1), and
// attributes of undefined values (undefined, where jinja2 raises an error).
//
// # Limits
//
// A template is a program from outside. Its size, its nesting, its loops, the
// depth of its macros and the values it builds are limited (limits.go).
package chat
