package arch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch"
)

// fake is a Reference whose next token depends on all tokens before it, so
// that a sequence that was not taken back right shows at once.
type fake struct {
	vocab    int
	seq      []int32
	forwards int   // calls of Forward
	widest   int   // most tokens in one
	nan      int   // length of the sequence after which the logits are broken, 0 for never
	fail     error // what Truncate returns
}

func (f *fake) VocabSize() int        { return f.vocab }
func (f *fake) Pos() int              { return len(f.seq) }
func (f *fake) Observe(arch.Observer) {}

func (f *fake) Truncate(n int) error {
	f.seq = f.seq[:n]
	return f.fail
}

// logits peak at the rest of a weighted sum of the sequence.
func (f *fake) logits(seq []int32) []float32 {
	var h uint32 = 17
	for _, t := range seq {
		h = h*31 + uint32(t) + 1
	}
	out := make([]float32, f.vocab)
	for i := range out {
		out[i] = -float32((int(h>>8) + i) % f.vocab)
	}
	if f.nan != 0 && len(seq) >= f.nan {
		out[1] = float32(math.NaN())
	}
	return out
}

func (f *fake) Forward(_ context.Context, tokens []int32, want func(int) bool, visit func(int, []float32) error) error {
	f.forwards++
	f.widest = max(f.widest, len(tokens))
	old := len(f.seq)
	for i, t := range tokens {
		if t < 0 || int(t) >= f.vocab {
			f.seq = f.seq[:old]
			return fmt.Errorf("token %d", t)
		}
		f.seq = append(f.seq, t)
		if want == nil || want(i) {
			if err := visit(i, f.logits(f.seq)); err != nil {
				f.seq = f.seq[:old]
				return err
			}
		}
	}
	return nil
}

// next is the plain loop that Greedy is held to.
func (f *fake) next(seq []int32, n int) []int32 {
	seq = slices.Clone(seq)
	for range n {
		best := 0
		l := f.logits(seq)
		for i, v := range l {
			if v > l[best] {
				best = i
			}
		}
		seq = append(seq, int32(best))
	}
	return seq[len(seq)-n:]
}

func TestGreedy(t *testing.T) {
	const vocab = 50
	model := &fake{vocab: vocab}
	earlier, prompt := []int32{9, 9}, []int32{4, 8, 15}
	full := func(context []int32) []int32 { return append(slices.Clone(earlier), context...) }
	perfect := func(context []int32, k int) ([]int32, error) { return model.next(full(context), k), nil }
	wrongAt := func(every int) arch.Draft {
		return func(context []int32, k int) ([]int32, error) {
			guess, _ := perfect(context, k)
			for i := range guess {
				if (len(context)+i)%every == 0 {
					guess[i] = (guess[i] + 1) % vocab
				}
			}
			return guess, nil
		}
	}
	for _, c := range []struct {
		name  string
		draft arch.Draft
	}{
		{"none", nil},
		{"perfect", perfect},
		{"wrong now and then", wrongAt(5)},
		{"rarely wrong", wrongAt(23)},
		{"always wrong", wrongAt(1)},
		{"silent", func([]int32, int) ([]int32, error) { return nil, nil }},
		{"too long", func(context []int32, k int) ([]int32, error) { return perfect(context, k+10) }},
		{"outside of the vocabulary", func(context []int32, k int) ([]int32, error) {
			guess, _ := perfect(context, k)
			guess[k/2] = vocab
			return guess, nil
		}},
		{"negative", func(context []int32, k int) ([]int32, error) { return []int32{-1}, nil }},
	} {
		for _, n := range []int{0, 1, 2, 9, 10, 100} {
			for _, visited := range []bool{false, true} {
				ref := &fake{vocab: vocab, seq: slices.Clone(earlier)}
				all := append(full(prompt), model.next(full(prompt), n)...)
				want := all[len(all)-n:]
				asked := false
				cont := arch.Continuation{Ref: ref, Draft: c.draft}
				if c.draft != nil {
					cont.Draft = func(context []int32, k int) ([]int32, error) {
						asked = true
						if !slices.Equal(full(context), all[:len(earlier)+len(context)]) {
							t.Errorf("%s: the draft is asked to go on from %v", c.name, context)
						}
						if k < 1 || k > 64 || len(earlier)+len(context)+k > len(all) {
							t.Errorf("%s: the draft is asked for %d tokens after %d of %d", c.name, k, len(context), len(all))
						}
						return c.draft(context, k)
					}
				}
				pos := len(earlier)
				if visited {
					cont.Visit = func(p int, token int32, logits []float32) error {
						if p != pos || token != all[p] || !slices.Equal(logits, model.logits(all[:p+1])) {
							t.Errorf("%s: visited position %d with token %d, want %d with %d and its logits", c.name, p, token, pos, all[pos])
						}
						pos++
						return nil
					}
				}
				got, err := cont.Greedy(t.Context(), prompt, n)
				if err != nil {
					t.Fatalf("%s, %d tokens: %v", c.name, n, err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %d tokens: got %v, want %v", c.name, n, got, want)
				}
				holds := len(all)
				if !visited && n > 0 {
					holds--
				}
				if !slices.Equal(ref.seq, all[:holds]) {
					t.Errorf("%s, %d tokens: the reference holds %v, want %v", c.name, n, ref.seq, all[:holds])
				}
				if visited && pos != len(all) {
					t.Errorf("%s, %d tokens: visited up to position %d of %d", c.name, n, pos, len(all))
				}
				if c.draft != nil && n > 2 && !asked {
					t.Errorf("%s, %d tokens: the draft was never asked", c.name, n)
				}
				// 1 + 8, 1 + 16, 1 + 32 and the rest.
				if c.name == "perfect" && n == 100 && ref.forwards > 1+4+1 {
					t.Errorf("a perfect draft of 100 tokens took %d passes", ref.forwards)
				}
				if ref.widest > 65 {
					t.Errorf("%s: %d tokens in one pass", c.name, ref.widest)
				}
			}
		}
	}
}

func TestGreedyErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name   string
		ref    *fake
		prompt []int32
		n      int
		draft  arch.Draft
		visit  func(int, int32, []float32) error
		want   string
	}{
		{"no prompt", &fake{vocab: 5}, nil, 3, nil, nil, "the prompt has no tokens"},
		{"negative", &fake{vocab: 5}, []int32{1}, -1, nil, nil, "-1 tokens wanted"},
		{"bad token", &fake{vocab: 5}, []int32{5}, 1, nil, nil, "token 5"},
		{"draft fails", &fake{vocab: 5}, []int32{1}, 3, func([]int32, int) ([]int32, error) { return nil, boom }, nil, "draft: boom"},
		{"visit fails", &fake{vocab: 5}, []int32{1}, 3, nil, func(pos int, _ int32, _ []float32) error {
			if pos == 2 {
				return boom
			}
			return nil
		}, "boom"},
		{"not a number", &fake{vocab: 5, nan: 3}, []int32{1}, 9, nil, nil, "after token 2 of the sequence: logit 1 of 5 is not a number"},
		{"cannot truncate", &fake{vocab: 5, fail: boom}, []int32{1}, 9, func(_ []int32, k int) ([]int32, error) { return make([]int32, k), nil }, nil, "boom"},
	} {
		cont := arch.Continuation{Ref: c.ref, Draft: c.draft, Visit: c.visit}
		if _, err := cont.Greedy(t.Context(), c.prompt, c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.want)
		}
	}
}

func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		logits []float32
		want   int32
		err    string
	}{
		{[]float32{1, 3, 2}, 1, ""},
		{[]float32{-2, -1, -1}, 1, ""}, // the first of equals
		{[]float32{-inf, -inf}, 0, ""},
		{[]float32{0, inf, inf}, 1, ""},
		{[]float32{5, 1, nan}, 0, "logit 2 of 3 is not a number"},
		{nil, 0, "no logits"},
	} {
		got, err := arch.Argmax(c.logits)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("Argmax(%v) = %d, %v; want %d, %q", c.logits, got, err, c.want, c.err)
		}
	}
}

func ExampleGreedy() {
	ref := &fake{vocab: 10} // in earnest: the one of an arch.Model
	draft := func(context []int32, k int) ([]int32, error) {
		return []int32{7, 7, 7}[:min(k, 3)], nil // in earnest: what the package says
	}
	alone, _ := arch.Greedy(context.Background(), &fake{vocab: 10}, []int32{1, 2, 3}, 6, nil)
	drafted, err := arch.Greedy(context.Background(), ref, []int32{1, 2, 3}, 6, draft)
	fmt.Println(slices.Equal(alone, drafted), err)
	// Output: true <nil>
}
