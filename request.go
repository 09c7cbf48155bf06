package anemone

import (
	"encoding/json"
	"time"

	"anemone/internal/generate"
	"anemone/internal/session"
	"anemone/internal/tokenizer/chat"
)

// Request is one turn: messages for the chat template, or a prompt as it is.
type Request struct {
	// Messages is the conversation so far. It needs a package with a chat
	// template.
	Messages []Message
	Chat     ChatOptions // how the template writes the messages
	// Prompt is used if there are no messages.
	Prompt string

	Sampling  Sampling // how tokens are drawn
	MaxTokens int      // ends the answer after so many; 0 means as many as fit
	IgnoreEOS bool     // goes on past the tokens that end an answer

	// NoShift ends the answer when the context is full. Without it the oldest
	// tokens behind the system prompt are dropped to make room, for answers
	// that MaxTokens allows to be so long.
	NoShift bool
	// Trim drops the oldest tokens of a prompt that is longer than the context.
	// Without it such a prompt is an error that matches [ErrContextFull].
	Trim bool
}

// Message is one message of a conversation. Templates see Role and Content,
// and the other fields if they are not empty.
type Message struct {
	Role       string            // "system", "user", "assistant" or "tool"
	Content    string            // the text
	Parts      []json.RawMessage // content in parts ({"type": "text", ...}), in place of Content
	Reasoning  string            // what an assistant thought before it answered
	ToolCalls  []ToolCall        // what an assistant wants to be called
	Name       string            // of the tool that a tool message answers for
	ToolCallID string            // the call that a tool message answers
	Extra      map[string]any    // anything else that a template knows, by name
}

// ToolCall is a call of a tool by an assistant.
type ToolCall struct {
	ID        string
	Name      string          // of the tool
	Arguments json.RawMessage // an object, or a string that holds one
}

// ChatOptions are what the text of a conversation depends on besides its
// messages.
type ChatOptions struct {
	// EnableThinking lets a model that can think before it answers do so, or
	// keeps it from doing so; nil is the template's own choice.
	EnableThinking *bool
	Tools          []json.RawMessage // descriptions of tools, JSON objects
	Extra          map[string]any    // any other variable of the template
	Now            time.Time         // for templates that print a date; zero is the present
}

// Sampling is how tokens are drawn. What is left nil is as the package
// recommends; if it recommends nothing, the likeliest token is taken. The
// steps come in the order of the fields.
type Sampling struct {
	// RepetitionPenalty, above 1, makes tokens that occurred less likely: it
	// divides their positive logits and multiplies their negative ones.
	RepetitionPenalty *float64
	// Temperature divides the logits; 0 takes the likeliest token.
	Temperature *float64
	TopK        *int     // keeps the K likeliest tokens; 0 keeps all
	TopP        *float64 // keeps the likeliest tokens that together have this probability, 0 to 1
	MinP        *float64 // drops tokens less likely than this share of the likeliest, 0 to 1
	// Seed makes draws repeatable on machines of one kind; nil takes a new one.
	Seed *uint64
}

// EventKind tells what an event is about.
type EventKind int

// Kinds of events.
const (
	EventPrefill EventKind = iota // Done of Total tokens of the prompt were read
	EventToken                    // Token was drawn; Text is now certain
	EventShift                    // the context was full: Dropped tokens went, Kept stay
	EventEnd                      // the Reason, the rest of the Text, and Stats
)

// Reason tells why an answer ended.
type Reason string

// Reasons.
const (
	ReasonStop        Reason = "stop"         // a token that ends an answer
	ReasonLength      Reason = "length"       // MaxTokens
	ReasonContextFull Reason = "context full" // no position was left
)

// Event is one thing that happens during a generation. The fields of other
// kinds are zero.
type Event struct {
	Kind EventKind

	Done, Total int // EventPrefill: tokens

	Token int32  // EventToken; EventEnd: the token that ended the answer, or -1
	Text  string // EventToken, EventEnd: characters that are complete now

	Dropped, Kept int // EventShift: tokens

	Reason Reason // EventEnd
	Stats  Stats  // EventEnd
}

// Stats are the figures of one generation.
type Stats struct {
	Prompt    int // tokens of the prompt
	Reused    int // of these, tokens that the session had seen already
	Generated int // tokens of the answer, without the one that ended it
	Shifts    int // how often the context was full

	FirstToken  time.Duration // from the start to the first token of the answer
	PrefillRate float64       // tokens of the prompt per second, without those reused
	DecodeRate  float64       // tokens of the answer per second
}

func (r *Request) internal() generate.Request {
	s := &r.Sampling
	out := generate.Request{
		Prompt: r.Prompt, MaxTokens: r.MaxTokens, IgnoreEOS: r.IgnoreEOS, NoShift: r.NoShift, Trim: r.Trim,
		Chat:     chat.Options{EnableThinking: r.Chat.EnableThinking, Tools: r.Chat.Tools, Extra: r.Chat.Extra, Now: r.Chat.Now},
		Sampling: session.Preferences{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepetitionPenalty: s.RepetitionPenalty, Seed: s.Seed},
	}
	for _, m := range r.Messages {
		c := chat.Message{Role: m.Role, Content: m.Content, Parts: m.Parts, Reasoning: m.Reasoning, Name: m.Name, ToolCallID: m.ToolCallID, Extra: m.Extra}
		for _, t := range m.ToolCalls {
			c.ToolCalls = append(c.ToolCalls, chat.ToolCall(t))
		}
		out.Messages = append(out.Messages, c)
	}
	return out
}

var eventKinds = map[session.EventKind]EventKind{session.Prefill: EventPrefill, session.Token: EventToken, session.Shift: EventShift, session.End: EventEnd}

var reasons = map[session.Reason]Reason{session.Stopped: ReasonStop, session.MaxTokens: ReasonLength, session.Full: ReasonContextFull}

func event(e session.Event) Event {
	out := Event{Kind: eventKinds[e.Kind], Done: e.Done, Total: e.Total, Token: e.Token, Text: e.Text, Dropped: e.Dropped, Kept: e.Kept}
	if e.Kind == session.End {
		s := &e.Stats
		out.Reason = reasons[e.Reason]
		out.Stats = Stats{Prompt: s.Prompt, Reused: s.Reused, Generated: s.Generated, Shifts: s.Shifts, FirstToken: s.FirstToken, PrefillRate: s.PrefillRate(), DecodeRate: s.DecodeRate()}
	}
	return out
}
