package mlmodelc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml"
	"anemone/mil"
)

// object is a JSON object whose entries keep their order.
type object []entry

type entry struct {
	key   string
	value any // string, int, object or []object
}

// metadata returns the content of metadata.json: what the description and
// the program say, in the words that Xcode shows.
func metadata(m *coreml.Model, d *Details) ([]byte, error) {
	shown := &m.Functions[0]
	if m.DefaultFunction != "" {
		shown = m.Function(m.DefaultFunction)
	}
	first := m.Program.Function(shown.Name)
	o := object{
		{"metadataOutputVersion", "3.0"},
		{"specificationVersion", m.SpecVersion},
		{"modelType", object{{"name", "MLModelType_mlProgram"}}},
		{"availability", availability(m.SpecVersion)},
	}
	text := func(key, value string) {
		if value != "" {
			o = append(o, entry{key, value})
		}
	}
	text("shortDescription", m.Metadata.ShortDescription)
	text("version", m.Metadata.Version)
	text("author", m.Metadata.Author)
	text("license", m.Metadata.License)
	o = append(o, schemas(shown)...)
	o = append(o, statistics(first)...)
	if m.DefaultFunction != "" {
		var fs []object
		for i := range m.Functions {
			f := &m.Functions[i]
			x := append(object{{"name", f.Name}}, schemas(f)...)
			fs = append(fs, append(x, statistics(m.Program.Function(f.Name))...))
		}
		o = append(o, entry{"functions", fs}, entry{"defaultFunctionName", m.DefaultFunction})
	}
	user := object{}
	for _, k := range slices.Sorted(maps.Keys(m.Metadata.User)) {
		user = append(user, entry{k, m.Metadata.User[k]})
	}
	o = append(o, object{
		{"userDefinedMetadata", user},
		{"generatedClassName", d.ClassName},
		{"isUpdatable", "0"},
		{"method", "predict"},
		{"modelParameters", []object(nil)},
	}...)
	var b bytes.Buffer
	err := writeJSON(&b, []object{o}, 0)
	return b.Bytes(), err
}

// availability lists the first systems that load a model.
func availability(specVersion int) object {
	versions, ok := map[int][6]string{
		6:  {"12.0", "15.0", "1.0", "8.0", "15.0", "15.0"},
		7:  {"13.0", "16.0", "1.0", "9.0", "16.0", "16.0"},
		8:  {"14.0", "17.0", "1.0", "10.0", "17.0", "17.0"},
		9:  {"15.0", "18.0", "2.0", "11.0", "18.0", "18.0"},
		10: {"16.0", "19.0", "3.0", "12.0", "19.0", "19.0"},
	}[specVersion]
	if !ok {
		return object{}
	}
	o := object{}
	for i, system := range []string{"macOS", "tvOS", "visionOS", "watchOS", "iOS", "macCatalyst"} {
		o = append(o, entry{system, versions[i]})
	}
	return o
}

func schemas(f *coreml.Function) object {
	list := func(fs []coreml.Feature, state bool) []object {
		var out []object
		for i := range fs {
			out = append(out, schema(&fs[i], state))
		}
		return out
	}
	return object{
		{"inputSchema", list(f.Inputs, false)},
		{"outputSchema", list(f.Outputs, false)},
		{"stateSchema", list(f.States, true)},
	}
}

func schema(f *coreml.Feature, state bool) object {
	kind := "MultiArray"
	if state {
		kind = "State"
	}
	typ := typeName(f.DType)
	formatted := kind + " (" + typ
	if len(f.Shape) > 0 {
		formatted += " " + joinInts(f.Shape, " × ")
	}
	o := object{
		{"name", f.Name},
		{"shortDescription", f.Description},
		{"type", kind},
		{"dataType", typ},
		{"formattedType", formatted + ")"},
		{"shape", list(f.Shape)},
		{"isOptional", flag(f.Optional)},
	}
	if state {
		return o
	}
	o = append(o, entry{"hasShapeFlexibility", flag(len(f.Shapes) > 0 || len(f.Ranges) > 0)})
	switch {
	case len(f.Shapes) > 0:
		var words, lists []string
		for _, s := range f.Shapes {
			words = append(words, joinInts(s, " × "))
			lists = append(lists, list(s))
		}
		o = append(o, entry{"shapeFlexibility", strings.Join(words, " | ")}, entry{"enumeratedShapes", "[" + strings.Join(lists, ", ") + "]"})
	case len(f.Ranges) > 0:
		var words, lists []string
		for _, r := range f.Ranges {
			word := strconv.Itoa(r.Min)
			switch {
			case r.Max < 0:
				word += "..."
			case r.Max != r.Min:
				word += "..." + strconv.Itoa(r.Max)
			}
			words = append(words, word)
			lists = append(lists, list([]int{r.Min, max(r.Max, -1)}))
		}
		o = append(o, entry{"shapeFlexibility", strings.Join(words, " × ")}, entry{"shapeRange", "[" + strings.Join(lists, ", ") + "]"})
	}
	return o
}

func flag(v bool) string {
	if v {
		return "1"
	}
	return "0"
}

func joinInts(s []int, sep string) string {
	words := make([]string, len(s))
	for i, n := range s {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, sep)
}

func list(s []int) string { return "[" + joinInts(s, ", ") + "]" }

// typeName returns the name of an element type in Xcode's words.
func typeName(d mil.DType) string {
	switch d {
	case mil.Float64:
		return "Double"
	case mil.BFloat16:
		return "BFloat16"
	}
	s := d.String()
	switch {
	case strings.HasPrefix(s, "fp"):
		return "Float" + s[2:]
	case strings.HasPrefix(s, "uint"):
		return "UInt" + s[4:]
	case strings.HasPrefix(s, "int"):
		return "Int" + s[3:]
	}
	return s
}

// statistics returns what a function computes with and how it stores its
// weights.
func statistics(f *mil.Function) object {
	compute, storage := map[string]bool{}, map[string]bool{}
	counts := map[string]int{}
	f.Body.Walk(func(op *mil.Operation) bool {
		if op.Type != "const" {
			counts[opLabel(op.Type, f.Opset)]++
		}
		constexpr := strings.HasPrefix(op.Type, "constexpr_")
		if op.Type != "const" && !constexpr {
			number := func(v *mil.Value) {
				if t := v.Type; (t.Kind == mil.TensorKind || t.Kind == mil.StateKind) && (t.DType.IsFloat() || t.DType.IsInt()) {
					compute[typeName(t.DType)] = true
				}
			}
			for _, a := range op.Args {
				for _, v := range a.Values {
					number(v)
				}
			}
			for _, v := range op.Results {
				number(v)
			}
		}
		stored(op, storage)
		return true
	})
	o := object{{"computePrecision", precision(compute)}}
	if len(storage) > 0 {
		o = append(o, entry{"storagePrecision", precision(storage)})
	}
	histogram := object{}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		histogram = append(histogram, entry{k, counts[k]})
	}
	return append(o, entry{"mlProgramOperationTypeHistogram", histogram})
}

// stored adds how an operation's weights are stored.
func stored(op *mil.Operation, storage map[string]bool) {
	var types []string
	add := func(v *mil.Value) {
		if v != nil && v.Weight != nil && (v.Name == "" || v.Op == op) {
			types = append(types, typeName(v.Weight.Type().DType))
		}
	}
	for _, a := range op.Args {
		for _, v := range a.Values {
			add(v)
		}
	}
	for _, a := range op.Attributes {
		add(a.Value)
	}
	for _, v := range op.Results {
		add(v)
	}
	if len(types) == 0 {
		return
	}
	switch op.Type {
	case "constexpr_sparse_to_dense":
		storage["Sparse"] = true
		return
	case "constexpr_lut_to_dense":
		if lut := op.Operand("lut"); lut != nil {
			n, _ := lut.Type.NumElements()
			storage[fmt.Sprintf("Palettized (%d bits)", bits.Len(uint(max(n, 1)-1)))] = true
		}
		if op.Attr("lut") != nil { // the form before iOS 18
			return
		}
	}
	for _, t := range types {
		storage[t] = true
	}
}

// precision names a set of types.
func precision(set map[string]bool) string {
	names := slices.Sorted(maps.Keys(set))
	if len(names) == 1 {
		return names[0]
	}
	return "Mixed (" + strings.Join(names, ", ") + ")"
}

// writeJSON writes in the layout of Apple's tools: two spaces, a space before
// every colon, and an empty line in what is empty.
func writeJSON(b *bytes.Buffer, v any, depth int) error {
	indent := func(n int) { b.WriteString(strings.Repeat("  ", n)) }
	text := func(s string) error {
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the encoder's newline
		return nil
	}
	group := func(open, close byte, n int, item func(i int) error) error {
		b.WriteByte(open)
		b.WriteByte('\n')
		for i := range n {
			indent(depth + 1)
			if err := item(i); err != nil {
				return err
			}
			if i+1 < n {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		if n == 0 {
			b.WriteByte('\n')
		}
		indent(depth)
		b.WriteByte(close)
		return nil
	}
	switch v := v.(type) {
	case string:
		return text(v)
	case int:
		b.WriteString(strconv.Itoa(v))
		return nil
	case object:
		return group('{', '}', len(v), func(i int) error {
			if err := text(v[i].key); err != nil {
				return err
			}
			b.WriteString(" : ")
			return writeJSON(b, v[i].value, depth+1)
		})
	case []object:
		return group('[', ']', len(v), func(i int) error { return writeJSON(b, v[i], depth+1) })
	}
	return fmt.Errorf("no JSON form of %T", v)
}

// readClassName returns the name of the class in a metadata.json.
func readClassName(b []byte) string {
	var m []struct {
		Name string `json:"generatedClassName"`
	}
	if json.Unmarshal(b, &m) != nil || len(m) == 0 {
		return ""
	}
	return m[0].Name
}
