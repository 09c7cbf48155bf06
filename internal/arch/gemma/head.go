package gemma

import (
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Head multiplies the last token's normed state by the head [vocab, hidden],
// in parts, and bounds the logits by softcap unless that is 0.
func Head(head *checkpoint.Tensor, softcap float64, o arch.Options) (*mil.Function, error) {
	vocab, hidden := head.Shape[0], head.Shape[1]
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, 1, hidden))
	if softcap > 0 {
		// The soft cap's division is done here: behind the products it would be
		// a constant that compilers fold into the weights.
		x = nn.Scale(b, x, 1/softcap)
	}
	x = nn.ToChannels(b, x)
	from := 0
	for i, n := range arch.SplitVocab(vocab, o.SplitHead) {
		if n == 0 {
			return nil, fmt.Errorf("a vocabulary of %d does not split into %d parts", vocab, o.SplitHead)
		}
		y := nn.Project(b, x, nn.Linear(head, from, from+n), nil)
		if softcap > 0 {
			y = nn.Softcap(b, y, softcap)
		}
		b.Output(fmt.Sprintf("logits%d", i+1), nn.FromChannels(b, y))
		from += n
	}
	return b.Build()
}
