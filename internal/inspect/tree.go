package inspect

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml"
	"anemone/internal/inspect/stored"
)

// Tensor is one weight of a model.
type Tensor struct {
	Name string `json:"name"`
	// Path is the name in parts, such as layers, 3, self_attn, q_proj_weight.
	Path      []string `json:"path"`
	Shape     []int    `json:"shape"`
	DType     string   `json:"dtype"` // as operations see it
	Encoding  string   `json:"encoding"`
	Bytes     int64    `json:"bytes"`
	Functions []string `json:"functions"` // that use it
	Pieces    []Piece  `json:"pieces"`
}

// Piece is a stretch of a file of weights.
type Piece struct {
	Role   string `json:"role,omitempty"` // such as "indices"
	File   string `json:"file"`
	Offset uint64 `json:"offset"` // of its record
	Bytes  int64  `json:"bytes"`
}

func tensors(m *coreml.Model, where coreml.Stored) []Tensor {
	ts := stored.List(m.Program, where)
	out := make([]Tensor, len(ts))
	for i := range ts {
		t := &ts[i]
		out[i] = Tensor{
			Name: t.Name, Path: path(t.Name), Shape: t.Type.Shape, DType: t.Type.DType.String(), Encoding: t.Encoding.String(),
			Bytes: t.Bytes(), Functions: t.Functions,
		}
		for _, p := range t.Pieces {
			out[i].Pieces = append(out[i].Pieces, Piece{p.Role, p.File, p.Offset, p.Bytes})
		}
	}
	return out
}

var (
	layer = regexp.MustCompile(`^(?:(.*?)_)?(layers|layer|blocks|block|h)_(\d+)_(.+)$`)
	group = regexp.MustCompile(`^(self_attn|linear_attn|attn|attention|cross_attn|mlp|feed_forward|ffn|experts|shared_expert|block_sparse_moe)_(.+)$`)
)

// path splits a name. Converters put '_' in place of the dots of a checkpoint's
// names, which have some of their own, so where the parts end can only be known
// from the words that models use. What stands before the layers ("model_model")
// says nothing and is left out.
func path(name string) []string {
	name = strings.TrimSuffix(name, "_palettized")
	var out []string
	if m := layer.FindStringSubmatch(name); m != nil {
		out = append(out, "layers", m[3])
		name = m[4]
	}
	for range maxGroups {
		m := group.FindStringSubmatch(name)
		if m == nil {
			break
		}
		out, name = append(out, m[1]), m[2]
	}
	return append(out, name)
}

// maxGroups bounds the depth of the tree, whatever the names are.
const maxGroups = 3

// Row is a line of the tree of weights: a group, or a weight.
type Row struct {
	Depth int
	Name  string
	Bytes int64 // of one, if there are several alike
	// Alike is the number of groups that the line stands for, 1 for a weight.
	Alike  int
	Tensor *Tensor // nil for a group
}

// Tree arranges weights by their names, groups first where they first appear.
// Neighbouring layers that hold the same are one row ("0 to 27") unless full is
// set.
func Tree(ts []Tensor, full bool) []Row {
	root := &node{}
	for i := range ts {
		n := root
		for _, s := range ts[i].Path[:len(ts[i].Path)-1] {
			n = n.child(s)
		}
		n.children = append(n.children, &node{name: ts[i].Path[len(ts[i].Path)-1], tensor: &ts[i]})
	}
	root.sum()
	return root.rows(nil, 0, full)
}

type node struct {
	name     string
	tensor   *Tensor
	children []*node
	groups   map[string]*node // children without a tensor, by name
	bytes    int64
	shape    string // tells what it holds, names and types, not where
}

func (n *node) child(name string) *node {
	c := n.groups[name]
	if c == nil {
		if n.groups == nil {
			n.groups = map[string]*node{}
		}
		c = &node{name: name}
		n.groups[name] = c
		n.children = append(n.children, c)
	}
	return c
}

// sum fills in sizes and shapes, and puts numbered groups in order.
func (n *node) sum() {
	if t := n.tensor; t != nil {
		n.bytes = t.Bytes
		n.shape = fmt.Sprintf("%s %v %s %v", n.name, t.Shape, t.Encoding, t.Functions)
		return
	}
	for _, c := range n.children {
		c.sum()
		n.bytes += c.bytes
		n.shape += "(" + c.shape + ")"
		if c.tensor == nil && !numbered(c) {
			n.shape += c.name
		}
	}
	// Numbered groups change places among themselves only.
	var at []int
	var nums []*node
	for i, c := range n.children {
		if numbered(c) {
			at, nums = append(at, i), append(nums, c)
		}
	}
	slices.SortStableFunc(nums, func(a, b *node) int { return cmp.Compare(number(a), number(b)) })
	for i, c := range nums {
		n.children[at[i]] = c
	}
}

func numbered(n *node) bool {
	_, err := strconv.Atoi(n.name)
	return n.tensor == nil && err == nil
}

func number(n *node) int {
	x, _ := strconv.Atoi(n.name)
	return x
}

func (n *node) rows(out []Row, depth int, full bool) []Row {
	for i := 0; i < len(n.children); i++ {
		c := n.children[i]
		if c.tensor != nil {
			out = append(out, Row{Depth: depth, Name: c.name, Bytes: c.bytes, Alike: 1, Tensor: c.tensor})
			continue
		}
		j := i
		for !full && numbered(c) && j+1 < len(n.children) && numbered(n.children[j+1]) && number(n.children[j+1]) == number(n.children[j])+1 && n.children[j+1].shape == c.shape {
			j++
		}
		name := c.name
		if j > i {
			name += " to " + n.children[j].name
		}
		out = append(out, Row{Depth: depth, Name: name, Bytes: c.bytes, Alike: j - i + 1})
		out = c.rows(out, depth+1, full)
		i = j
	}
	return out
}
