package check

import (
	"fmt"
	"slices"

	"anemone/mil"
)

// The residual stream of a decoder is what every layer reads and adds to:
// x, x + attention(norm(x)), and so on to the final norm. It is found in the
// program without knowing the architecture: from the value that enters the
// first layer, an addition to the stream is an add of the stream as it is and
// of something else of the same shape that is computed. Between additions the
// stream may be copied, cast, clamped or multiplied by a constant number (which
// some architectures do at the end of each layer).

// stream is the longest chain of such additions in a function.
type stream struct {
	// after[k] is the stream after k additions, as the next addition finds it.
	// The last one is as it was after the last addition and what surely
	// belongs to that.
	after []*mil.Value
	// on has every value of the chain.
	on map[*mil.Value]bool
}

// link says how a value hangs on the stream.
type link struct {
	adds int        // from the start
	from *mil.Value // the value before it; nil at the start
}

// findStream follows the stream from one of the starts.
func findStream(f *mil.Function, starts ...*mil.Value) *stream {
	links := map[*mil.Value]link{}
	for _, v := range starts {
		links[v] = link{}
	}
	best := starts[0]
	uses := map[*mil.Value][]*mil.Operation{}
	for _, op := range f.Body.Ops {
		for _, a := range op.Args {
			for _, v := range a.Values {
				uses[v] = append(uses[v], op)
			}
		}
		if len(op.Results) != 1 || op.Type == "const" {
			continue
		}
		r := op.Results[0]
		if _, again := links[r]; again {
			continue // no verified program gives a value twice; it would be a circle
		}
		x, y := op.Value("x"), op.Value("y")
		lx, onX := links[x]
		ly, onY := links[y]
		onX, onY = onX && sameShape(x, r), onY && sameShape(y, r)
		switch op.Type {
		case "identity", "cast", "clip":
			if onX {
				links[r] = link{lx.adds, x}
			}
		case "mul":
			switch {
			case onX && isNumber(y):
				links[r] = link{lx.adds, x}
			case onY && isNumber(x):
				links[r] = link{ly.adds, y}
			}
		case "real_div":
			if onX && isNumber(y) {
				links[r] = link{lx.adds, x}
			}
		case "add":
			if onY && (!onX || ly.adds > lx.adds) {
				x, y, lx, onX = y, x, ly, true
			}
			switch {
			case !onX || y == nil:
			case y.IsConst() || !sameShape(y, r):
				// One number for the whole stream, or a constant.
				links[r] = link{lx.adds, x}
			default:
				links[r] = link{lx.adds + 1, x}
				if lx.adds+1 > links[best].adds {
					best = r
				}
			}
		}
	}
	// What follows the last addition belongs to it as long as nothing else
	// looks at the stream: a norm begins with several looks.
	outputs := map[*mil.Value]bool{}
	for _, o := range f.Body.Outputs {
		outputs[o] = true
	}
	for !outputs[best] && len(uses[best]) == 1 && len(uses[best][0].Results) == 1 {
		next := uses[best][0].Results[0]
		if l, ok := links[next]; !ok || l.from != best || l.adds != links[best].adds {
			break
		}
		best = next
	}
	s := &stream{on: map[*mil.Value]bool{}}
	for v := best; v != nil; v = links[v].from {
		s.on[v] = true
		// Going back, the first value met is the latest with so many additions.
		if n := len(s.after); n == 0 || links[v].adds < links[s.after[n-1]].adds {
			s.after = append(s.after, v)
		}
	}
	slices.Reverse(s.after)
	return s
}

func sameShape(a, b *mil.Value) bool {
	return a != nil && a.Type.Kind == mil.TensorKind && a.Type.Static() && slices.Equal(a.Type.Shape, b.Type.Shape)
}

// isNumber reports whether v is a constant of one element.
func isNumber(v *mil.Value) bool {
	if v == nil || !v.IsConst() {
		return false
	}
	n, ok := v.Type.NumElements()
	return ok && n == 1
}

// layers returns the stream behind each of n layers, at most, where every
// layer makes the given number of additions. There are fewer if the function
// leaves out the end of the last layer, as ANEMLL's prefill may.
func (s *stream) layers(n, perLayer int) []*mil.Value {
	var out []*mil.Value
	for k := 1; k <= n && k*perLayer < len(s.after); k++ {
		out = append(out, s.after[k*perLayer])
	}
	return out
}

// perLayer returns the number of additions that each of n layers makes.
func (s *stream) perLayer(n int) (int, error) {
	adds := len(s.after) - 1
	if n < 1 || adds < n || adds%n != 0 {
		return 0, fmt.Errorf("%d additions to the residual stream were found for %d layers", adds, n)
	}
	return adds / n, nil
}

// starts returns where the stream of a function may begin: at the hidden
// states that it takes, or of a function that takes tokens at what it looks up
// for them in tables.
func starts(f *mil.Function, hiddenStates, inputIDs string) []*mil.Value {
	if v := f.Input(hiddenStates); v != nil {
		return []*mil.Value{v}
	}
	ids := f.Input(inputIDs)
	if ids == nil {
		return nil
	}
	var found []*mil.Value
	from := map[*mil.Value]bool{ids: true} // indices
	for _, op := range f.Body.Ops {
		if len(op.Results) != 1 {
			continue
		}
		if op.Type == "gather" {
			if x := op.Value("x"); from[op.Value("indices")] && x != nil && (x.IsConst() || x.Op != nil && isConstexpr(x.Op)) {
				found = append(found, op.Results[0])
			}
			continue
		}
		// Indices are cast, made positive and reshaped.
		if d := op.Results[0].Type.DType; !d.IsInt() {
			continue
		}
		for _, a := range op.Args {
			for _, v := range a.Values {
				if from[v] {
					from[op.Results[0]] = true
				}
			}
		}
	}
	return found
}

func isConstexpr(op *mil.Operation) bool {
	return len(op.Type) > 10 && op.Type[:10] == "constexpr_"
}
