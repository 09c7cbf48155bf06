package arch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/mil"
)

func TestBuildChunk(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		remainders  []int
		first, last int
		broken      int // tokens of a function that cannot be built
		want        string
	}{
		{last: 4, want: "infer 1, prefill 32"},
		{remainders: []int{16, 2}, first: 3, last: 4, want: "infer 1, prefill 32, prefill_16 16, prefill_2 2"},
		{first: -1, last: 2, want: "no layers -1 to 2 in a model of 4"},
		{first: 2, last: 2, want: "no layers 2 to 2 in a model of 4"},
		{first: 3, last: 5, want: "no layers 3 to 5 in a model of 4"},
		{remainders: []int{-4}, last: 1, want: "a function for -4 tokens: want a divisor of the batch, 32, from 2 on"},
		{remainders: []int{0}, last: 1, want: "a function for 0 tokens"},
		{remainders: []int{1}, last: 1, want: "a function for 1 tokens"},
		{remainders: []int{16, 5}, last: 1, want: "a function for 5 tokens"},
		{remainders: []int{32}, last: 1, want: "a function for 32 tokens"},
		{remainders: []int{64}, last: 1, want: "a function for 64 tokens"},
		{last: 1, broken: 1, want: "broken"},
		{last: 1, broken: 32, want: "broken"},
		{remainders: []int{8}, last: 1, broken: 8, want: "broken"},
	} {
		var calls []string
		fs, err := arch.BuildChunk(arch.Options{Batch: 32, Remainders: c.remainders}, 4, c.first, c.last, func(name string, tokens int) (*mil.Function, error) {
			if tokens == c.broken {
				return nil, broken
			}
			calls = append(calls, fmt.Sprint(name, " ", tokens))
			return &mil.Function{Name: name}, nil
		})
		got := strings.Join(calls, ", ")
		if err != nil {
			got = err.Error()
		}
		if err == nil && len(fs) != len(calls) || err != nil && fs != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %d functions, %s", c, len(fs), got)
		}
		for i, f := range fs {
			if !strings.HasPrefix(calls[i], f.Name+" ") {
				t.Errorf("%+v: function %d is %s, built by %s", c, i, f.Name, calls[i])
			}
		}
	}
}
