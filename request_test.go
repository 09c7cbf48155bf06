package anemone

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"anemone/internal/anemll"
	"anemone/internal/session"
	"anemone/internal/tokenizer/chat"
)

// fill sets everything in v to something that is not zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]any{"n": *n}))
	case reflect.String:
		v.SetString(string(rune('a' + *n)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	}
}

// zeros names the fields, also of structs within, that are zero in v.
func zeros(v reflect.Value, path string) (out []string) {
	if v.Kind() == reflect.Slice && v.Len() > 0 {
		v = v.Index(0)
	}
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		for i := range v.NumField() {
			out = append(out, zeros(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
		return out
	}
	if v.IsZero() {
		out = append(out, path)
	}
	return out
}

// Nothing that a request says is lost on its way, but for what is not for
// callers to say.
func TestRequestIsWhole(t *testing.T) {
	var r Request
	n := 0
	fill(reflect.ValueOf(&r).Elem(), &n)
	g := r.internal()
	want := []string{".Chat.AddGenerationPrompt", ".Sampling.DoSample"}
	if got := zeros(reflect.ValueOf(g), ""); !reflect.DeepEqual(got, want) {
		t.Errorf("lost: %q, want %q", got, want)
	}
	m := r.Messages[0]
	if !reflect.DeepEqual(g.Messages, []chat.Message{{
		Role: m.Role, Content: m.Content, Parts: []json.RawMessage{m.Parts[0]}, Reasoning: m.Reasoning,
		ToolCalls: []chat.ToolCall{{ID: m.ToolCalls[0].ID, Name: m.ToolCalls[0].Name, Arguments: m.ToolCalls[0].Arguments}},
		Name:      m.Name, ToolCallID: m.ToolCallID, Extra: m.Extra,
	}}) || *g.Sampling.TopP != *r.Sampling.TopP || *g.Sampling.MinP != *r.Sampling.MinP {
		t.Errorf("%+v\nbecame\n%+v", r, g)
	}
}

func TestEvents(t *testing.T) {
	e := event(session.Event{Kind: session.End, Token: 5, Text: "x", Reason: session.MaxTokens, Stats: session.Stats{
		Prompt: 30, Reused: 10, Generated: 7, Shifts: 1, FirstToken: time.Second, Prefill: 2 * time.Second, Decode: 3 * time.Second, Decoded: 6,
	}})
	want := Event{Kind: EventEnd, Token: 5, Text: "x", Reason: ReasonLength, Stats: Stats{Prompt: 30, Reused: 10, Generated: 7, Shifts: 1, FirstToken: time.Second, PrefillRate: 10, DecodeRate: 2}}
	if e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
	for k, r := range map[session.Reason]Reason{session.Stopped: "stop", session.MaxTokens: "length", session.Full: "context full"} {
		if got := event(session.Event{Kind: session.End, Reason: k}).Reason; got != r || string(r) != k.String() {
			t.Errorf("%v became %q", k, got)
		}
	}
}

// Every option of a conversion has a name in the library: a new one in
// internal/anemll has to come here as well.
func TestConvertOptionsAreWhole(t *testing.T) {
	var o ConvertOptions
	n := 0
	fill(reflect.ValueOf(&o).Elem(), &n)
	o.Progress = func(Progress) {}
	if got := zeros(reflect.ValueOf(o.internal()), ""); len(got) > 0 {
		t.Errorf("lost: %q", got)
	}
	if ours, theirs := reflect.TypeFor[ConvertOptions]().NumField(), reflect.TypeFor[anemll.Options]().NumField(); ours != theirs {
		t.Errorf("%d options here, %d in internal/anemll", ours, theirs)
	}
}
