package session_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/session"
)

// Packages that ANEMLL's own converter made of small random checkpoints, held
// to what transformers computes of these. tools/anemll-peers makes them;
// ANEMONE_PEERS is the folder: packages, and beside each a file
// <name>.golden.safetensors of tokens and logits after every one.
func TestMorePeers(t *testing.T) {
	root := os.Getenv("ANEMONE_PEERS")
	if root == "" {
		t.Skip("ANEMONE_PEERS is not set; see tools/anemll-peers")
	}
	metas, err := filepath.Glob(filepath.Join(root, "*", "meta.yaml"))
	if err != nil || len(metas) == 0 {
		t.Fatalf("no packages in %s: %v", root, err)
	}
	for _, meta := range metas {
		dir := filepath.Dir(meta)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, calls, err := loadFolder(t, dir, 1)
			if err != nil {
				t.Fatal(err)
			}
			p := m.Package()
			for _, problem := range p.Problems {
				if !strings.Contains(problem, "cannot be read") { // empty .mlmodelc folders
					t.Logf("problem: %s", problem)
				}
			}
			g := readGoldenFile(t, dir+".golden.safetensors")
			vocab := len(g.logits) / len(g.tokens)
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			// What ANEMLL's head lost of the vocabulary is not compared.
			row := func(pos int) []float32 { return g.logits[pos*vocab:][:p.VocabSize] }
			n := len(g.tokens)
			for _, mode := range []session.Mode{session.Contract, session.InferOnly, session.AnemllSequence} {
				s.Reset()
				calls()
				least, same, seen := 1.0, 0, 0
				err := s.Each(t.Context(), g.tokens, mode, func(pos int, logits []float32) error {
					seen++
					want := row(pos)
					best, err := s.Best()
					if err != nil {
						return err
					}
					if want[best] == slices.Max(want) {
						same++
					}
					if logits == nil { // the best of each part against the same of the golden
						_, value := s.Argmax()
						var tops []float32
						at := 0
						for _, w := range p.LogitsWidths {
							tops = append(tops, slices.Max(want[at:at+w]))
							at += w
						}
						logits, want = value, tops
					}
					least = min(least, cosine(logits, want))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				list := strings.Fields(calls())
				t.Logf("mode %d: least cosine %.7f, best token the same at %d of %d positions, %d calls of decoder parts, last %s", mode, least, same, seen, len(list), list[len(list)-1])
				switch {
				case mode == session.InferOnly && seen != n, mode == session.AnemllSequence && seen != 1:
					t.Errorf("mode %d: %d scores", mode, seen)
				case mode == session.AnemllSequence && p.Window > 0 && n > p.Window:
					if !(least < 0.9999) {
						t.Errorf("mode %d: nothing shows that the cache was shifted once too often", mode)
					}
				case !(least >= 0.998) || float64(same) < 0.94*float64(seen): // their llama subtracts the mean in its norms
					t.Errorf("mode %d: least cosine %v, %d of %d best tokens", mode, least, same, seen)
				}
			}
		})
	}
}
