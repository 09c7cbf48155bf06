package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/session"
	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/chat"
)

// DefaultPrompt is what the reference writes on unless told otherwise. It is
// long enough that, with the answer, a batch of usual size goes through
// prefill.
const DefaultPrompt = "Explain step by step how a letter travels from one country to another: who collects it, where it is sorted, " +
	"how it crosses the border, and what could go wrong on the way. Then tell a short story about a letter that arrived ten years late."

// shortPrompt is DefaultPrompt where the context is short.
const shortPrompt = "Once upon a time"

// PackageOptions say what a package is held to. One of Checkpoint and Golden
// is given, or neither with a Text: then the package is held to itself, prefill
// against infer.
type PackageOptions struct {
	Options
	// Checkpoint is the model folder or GGUF file that the package was made of.
	Checkpoint string
	// Golden is a file of logits; see [Golden].
	Golden string
	// Prompt is what the reference writes on; empty means DefaultPrompt.
	Prompt string
	// Text, if not empty, is what the reference reads, in place of writing.
	// Without a reference, the package alone reads it.
	Text string
	// Template writes a user's message the way a chat template has it; nil
	// leaves the prompt as it is. A Text never goes through it.
	Template func(message string) (string, error)
}

// Package holds a loaded package to its checkpoint or to a golden file.
func Package(ctx context.Context, registry arch.Registry, m *session.Model, o PackageOptions) (*Report, error) {
	switch {
	case o.Checkpoint != "" && o.Golden != "":
		return nil, errors.New("a package is held to a checkpoint or to a golden file, not to both")
	case o.Golden != "":
		if o.Prompt != "" || o.Text != "" {
			return nil, errors.New("a golden file brings its own tokens: no prompt or text can be given")
		}
		g, err := OpenGolden(o.Golden)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		return Run(ctx, m, g, o.Options)
	case o.Prompt != "" && o.Text != "":
		return nil, errors.New("a prompt is to be continued and a text is to be read: give one of them")
	case o.Checkpoint == "" && o.Text == "":
		return nil, errors.New("nothing to hold the package to: want a checkpoint, a golden file, or a text for holding prefill to infer")
	case o.Checkpoint == "":
		tok, err := findTokenizer(m.Package().Dir, nil)
		if err != nil {
			return nil, err
		}
		return Run(ctx, m, Tokens(tok.Encode(o.Text, true)), o.Options)
	}
	ck, err := checkpoint.Open(o.Checkpoint)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	model, err := registry.Open(ck)
	if err != nil {
		return nil, err
	}
	src, err := NewSource(filepath.Base(filepath.Clean(o.Checkpoint)), model)
	if err != nil {
		return nil, err
	}
	tok, err := findTokenizer(m.Package().Dir, ck)
	if err != nil {
		return nil, err
	}
	if o.Text != "" {
		return Run(ctx, m, &Text{src, tok.Encode(o.Text, true)}, o.Options)
	}
	ids, err := o.promptIDs(tok, m.Package().ContextLength)
	if err != nil {
		return nil, err
	}
	return Run(ctx, m, &Greedy{src, ids}, o.Options)
}

// promptIDs returns the tokens of the prompt. The default one becomes shorter
// if it does not leave room for an answer.
func (o *PackageOptions) promptIDs(tok *tokenizer.Tokenizer, context int) ([]int32, error) {
	encode := func(prompt string) ([]int32, error) {
		if o.Template == nil {
			return tok.Encode(prompt, true), nil
		}
		s, err := o.Template(prompt)
		if err != nil {
			return nil, err
		}
		return tok.Encode(s, false), nil // the template has the special tokens
	}
	if o.Prompt != "" {
		return encode(o.Prompt)
	}
	ids, err := encode(DefaultPrompt)
	if err != nil {
		return nil, err
	}
	n := o.Tokens
	if n == 0 {
		n = DefaultTokens
	}
	if len(ids) > context-n {
		return encode(shortPrompt)
	}
	return ids, nil
}

// findTokenizer opens the tokenizer of the package or, if it brings none, of
// the checkpoint, which may be nil.
func findTokenizer(dir string, ck *checkpoint.Checkpoint) (*tokenizer.Tokenizer, error) {
	const name = "tokenizer.json"
	if dir != "" {
		tok, err := tokenizer.Open(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return tok, err
		}
	}
	why := ""
	if ck != nil {
		data, err := ck.ReadFile(name)
		if err == nil {
			tok, err := tokenizer.Parse(data)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", name, ck.Dir, err)
			}
			return tok, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := ck.TokenizerProblem(); err != nil {
			why = fmt.Sprintf(" (%v)", err)
		}
	}
	return nil, fmt.Errorf("neither the package nor the checkpoint has a tokenizer.json, so that no prompt can be given%s: compare with a golden file, which brings its tokens: %w", why, fs.ErrNotExist)
}

// FindTemplate returns the chat template of a package or, if it brings none, of
// the checkpoint at that path, "" for none; nil if neither has one.
func FindTemplate(dir, path string) (*chat.Template, error) {
	t, err := chat.Load(dir)
	if errors.Is(err, chat.ErrNoTemplate) && path != "" {
		t, err = templateOf(path)
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, nil
	}
	return t, err
}

// templateOf returns the chat template of a checkpoint.
func templateOf(path string) (*chat.Template, error) {
	if !gguf.IsFile(path) {
		return chat.Load(path)
	}
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	return chat.LoadFrom(path, ck.OpenFile)
}
