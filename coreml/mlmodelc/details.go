package mlmodelc

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"anemone/mil"
)

// Details are what a compiled bundle holds that its model does not decide.
// The zero value stands for what this program chooses; with those of a bundle
// that was read, it can be written again byte for byte.
type Details struct {
	// ComponentVersion and Version name the compiler, as the entries
	// coremlc-component-MIL and coremlc-version of the program's build
	// information. Empty is [DefaultComponentVersion] and [DefaultVersion].
	ComponentVersion, Version string
	// ModelHash is the base64 form of the SHA-256 of the specification that
	// was compiled, ModelName the name of its file without ".mlmodel". Empty
	// is the specification that package mlpackage writes for the model.
	ModelHash, ModelName string
	// ClassName is the name of the class that Xcode makes for the model.
	// Empty is the name of the bundle, with '_' for what no name can hold.
	ClassName string
	// UserOrder names free entries of the metadata in the order in which
	// they are stored. Those it does not name follow, by name.
	UserOrder []string
	// ShapeKeys gives the keys of a function's enumerated shapes, in the
	// order of the description: eight hexadecimal digits each. A function
	// that it does not name gets keys made from the shapes.
	ShapeKeys map[string][]string
}

// The compiler that bundles name unless told otherwise: one whose output the
// layout of all files was compared with. To Core ML the versions are text.
const (
	DefaultComponentVersion = "3510.2.1"
	DefaultVersion          = "3500.32.1"
)

const (
	buildInfo    = "buildInfo"
	componentKey = "coremlc-component-MIL"
	versionKey   = "coremlc-version"
	modelSection = "NeuralNetworkModelDetails"
	specSection  = "SpecificationDetails"
)

func hashOf(spec []byte) string {
	sum := sha256.Sum256(spec)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// analytics returns the content of analytics/coremldata.bin.
func (d *Details) analytics() []section {
	return []section{
		{modelSection, [][2]string{{"containsCustomLayer", "0"}, {"modelDimension", "0"}}},
		{specSection, [][2]string{{"modelHash", d.ModelHash}, {"modelName", d.ModelName}}},
	}
}

// className returns the name of a class for the bundle of a name.
func className(bundle string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, bundle)
}

// splitBuildInfo takes the compiler's entries out of a program's build
// information, which Apple's compiler put there.
func splitBuildInfo(p *mil.Program, d *Details) {
	i := slices.IndexFunc(p.Attributes, func(a mil.Attribute) bool { return a.Name == buildInfo })
	if i < 0 || !isStringDict(p.Attributes[i].Value) {
		return
	}
	l := *p.Attributes[i].Value.Literal
	var rest []*mil.Literal
	for k := 0; k+1 < len(l.Items); k += 2 {
		switch value := l.Items[k+1].Strings[0]; l.Items[k].Strings[0] {
		case componentKey:
			d.ComponentVersion = value
		case versionKey:
			d.Version = value
		default:
			rest = append(rest, l.Items[k:k+2]...)
		}
	}
	if len(rest) == 0 {
		p.Attributes = slices.Delete(p.Attributes, i, i+1)
		return
	}
	l.Items = rest
	p.Attributes[i].Value = mil.Imm(&l)
}

// joinBuildInfo returns the attributes of p with the compiler's entries in
// its build information.
func joinBuildInfo(p *mil.Program, d *Details) ([]mil.Attribute, error) {
	attrs := slices.Clone(p.Attributes)
	str := mil.TensorOf(mil.String)
	l := &mil.Literal{Type: mil.Type{Kind: mil.DictKind, Elems: []mil.Type{str, str}}}
	i := slices.IndexFunc(attrs, func(a mil.Attribute) bool { return a.Name == buildInfo })
	type entry struct{ k, v string }
	var entries []entry
	if i < 0 {
		i = len(attrs)
		attrs = append(attrs, mil.Attribute{Name: buildInfo})
	} else {
		v := attrs[i].Value
		if !isStringDict(v) {
			return nil, fmt.Errorf("attribute %q of the program is not a dict of strings", buildInfo)
		}
		for k := 0; k+1 < len(v.Literal.Items); k += 2 {
			e := entry{v.Literal.Items[k].Strings[0], v.Literal.Items[k+1].Strings[0]}
			if e.k != componentKey && e.k != versionKey {
				entries = append(entries, e)
			}
		}
	}
	entries = append(entries, entry{componentKey, d.ComponentVersion}, entry{versionKey, d.Version})
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.k, b.k) })
	for _, e := range entries {
		l.Items = append(l.Items, mil.Str(e.k), mil.Str(e.v))
	}
	attrs[i].Value = mil.Imm(l)
	return attrs, nil
}

func isStringDict(v *mil.Value) bool {
	if v == nil || v.Literal == nil || v.Literal.Type.Kind != mil.DictKind || len(v.Literal.Items)%2 != 0 {
		return false
	}
	for _, it := range v.Literal.Items {
		if it == nil || !it.Type.IsScalar() || len(it.Strings) != 1 {
			return false
		}
	}
	return true
}
