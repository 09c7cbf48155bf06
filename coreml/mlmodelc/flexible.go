package mlmodelc

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/mil"
)

// flexibleInfo is the attribute of a function with which the compiler repeats
// in the program what the description says of shapes that vary:
//
//	(("DefaultShapes",    {{"x", [1, 4]}}),
//	 ("EnumeratedShapes", {{"79ae981e", {{"x", [1, 1]}}}, {"ed9b58c8", {{"x", [1, 4]}}}}),
//	 ("RangeDims",        {{"y", [[1, 1], [1, 8]]}}))
//
// with the parts that the function's inputs call for.
const flexibleInfo = "FlexibleShapeInformation"

var (
	stringType = mil.TensorOf(mil.String)
	shapeType  = mil.TensorOf(mil.Int32, mil.Dynamic)
	shapesType = dictOf(shapeType)                                                                                // by input
	rangesType = mil.Type{Kind: mil.ListKind, Elems: []mil.Type{mil.TensorOf(mil.Int32, 2)}, Length: mil.Dynamic} // one for each dimension
)

func dictOf(t mil.Type) mil.Type {
	return mil.Type{Kind: mil.DictKind, Elems: []mil.Type{stringType, t}}
}

func tupleOf(t ...mil.Type) mil.Type { return mil.Type{Kind: mil.TupleKind, Elems: t} }

// flexible returns the attribute for a function, nil if it needs none. keys
// are those of its enumerated shapes; nil makes them.
func flexible(f *coreml.Function, keys []string) (*mil.Value, error) {
	inputs := slices.Clone(f.Inputs)
	slices.SortStableFunc(inputs, func(a, b coreml.Feature) int { return cmp.Compare(a.Name, b.Name) })
	defaults := &mil.Literal{Type: shapesType}
	ranges := &mil.Literal{Type: dictOf(rangesType)}
	n := -1 // enumerated shapes of each input that has some
	for _, in := range inputs {
		switch {
		case len(in.Shapes) > 0:
			if n >= 0 && n != len(in.Shapes) {
				return nil, fmt.Errorf("function %q: inputs have %d and %d enumerated shapes; several must have as many each, which are then chosen together", f.Name, n, len(in.Shapes))
			}
			n = len(in.Shapes)
		case len(in.Ranges) > 0:
			list := &mil.Literal{Type: rangesType}
			for _, r := range in.Ranges {
				list.Items = append(list.Items, mil.Ints(r.Min, max(r.Max, -1)))
			}
			ranges.Items = append(ranges.Items, mil.Str(in.Name), list)
		default:
			continue
		}
		defaults.Items = append(defaults.Items, mil.Str(in.Name), mil.Ints(in.Shape...))
	}
	if len(defaults.Items) == 0 {
		return nil, nil
	}
	info := &mil.Literal{Type: tupleOf()}
	part := func(tag string, l *mil.Literal) {
		t := tupleOf(stringType, l.Type)
		info.Type.Elems = append(info.Type.Elems, t)
		info.Items = append(info.Items, &mil.Literal{Type: t, Items: []*mil.Literal{mil.Str(tag), l}})
	}
	part("DefaultShapes", defaults)
	if n >= 0 {
		if keys == nil {
			keys = shapeKeys(f, n)
		}
		if len(keys) != n {
			return nil, fmt.Errorf("function %q: %d keys for %d enumerated shapes", f.Name, len(keys), n)
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
		enumerated := &mil.Literal{Type: dictOf(shapesType)}
		for k, i := range order {
			if k > 0 && keys[order[k-1]] == keys[i] {
				return nil, fmt.Errorf("function %q: two enumerated shapes have the key %q", f.Name, keys[i])
			}
			one := &mil.Literal{Type: shapesType}
			for _, in := range inputs {
				if len(in.Shapes) > 0 {
					one.Items = append(one.Items, mil.Str(in.Name), mil.Ints(in.Shapes[i]...))
				}
			}
			enumerated.Items = append(enumerated.Items, mil.Str(keys[i]), one)
		}
		part("EnumeratedShapes", enumerated)
	}
	if len(ranges.Items) > 0 {
		part("RangeDims", ranges)
	}
	return mil.Imm(info), nil
}

// shapeKeys makes keys for the n enumerated shapes of a function: the first
// eight hexadecimal digits of a hash of the shapes. How Apple's compiler makes
// them is not known; they only need to differ.
func shapeKeys(f *coreml.Function, n int) []string {
	keys := make([]string, n)
	seen := map[string]bool{}
	for i := range keys {
		text := shapesText(f, i)
		for try := 0; keys[i] == ""; try++ {
			sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", try, text))
			if key := fmt.Sprintf("%x", sum[:4]); !seen[key] {
				seen[key] = true
				keys[i] = key
			}
		}
	}
	return keys
}

// splitFlexible takes the attribute out of a function and returns the keys of
// its enumerated shapes, nil if there are none or they are not those of the
// description. The description has the rest.
func splitFlexible(f *mil.Function, d *coreml.Function) []string {
	i := slices.IndexFunc(f.Attributes, func(a mil.Attribute) bool { return a.Name == flexibleInfo })
	if i < 0 {
		return nil
	}
	l := f.Attributes[i].Value.Literal
	if f.Attributes = slices.Delete(f.Attributes, i, i+1); len(f.Attributes) == 0 {
		f.Attributes = nil
	}
	if l == nil || d == nil {
		return nil
	}
	n := 0
	for _, in := range d.Inputs {
		n = max(n, len(in.Shapes))
	}
	for _, part := range l.Items {
		if len(part.Items) != 2 || !isTag(part.Items[0], "EnumeratedShapes") {
			continue
		}
		found := map[string][]string{} // keys by shapes
		entries := part.Items[1].Items
		for k := 0; k+1 < len(entries); k += 2 {
			if key := entries[k].Strings; len(key) == 1 && key[0] != "" {
				text := dictText(entries[k+1])
				found[text] = append(found[text], key[0])
			}
		}
		keys := make([]string, n)
		for i := range keys {
			text := shapesText(d, i)
			if len(found[text]) == 0 {
				return nil
			}
			keys[i], found[text] = found[text][0], found[text][1:]
		}
		if len(entries) == 2*n {
			return keys
		}
	}
	return nil
}

func isTag(l *mil.Literal, tag string) bool { return len(l.Strings) == 1 && l.Strings[0] == tag }

// shapesText returns the i-th enumerated shapes of a function, as text that
// tells them from others.
func shapesText(f *coreml.Function, i int) string {
	var lines []string
	for _, in := range f.Inputs {
		if i < len(in.Shapes) {
			lines = append(lines, fmt.Sprintf("%s %v\n", in.Name, in.Shapes[i]))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// dictText returns the same for a dict of shapes by input.
func dictText(l *mil.Literal) string {
	var lines []string
	for k := 0; k+1 < len(l.Items); k += 2 {
		for _, name := range l.Items[k].Strings {
			lines = append(lines, fmt.Sprintf("%s %v\n", name, l.Items[k+1].Ints))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
