package tokenizer

import (
	"fmt"
	"slices"
	"sort"
)

// trie finds the strings of a set that a text starts with. Its nodes are
// numbered level by level, so that the children of a node stand together and
// those of the next node follow them.
type trie struct {
	label []byte   // of each node: the byte that leads to it; node 0 is the root
	first []uint32 // of each node, and one more: its first child
	value []int32  // of each node: the value of the string that ends there, or -1
	root  [256]uint32
}

// newTrie builds a trie of strings, all different and not empty, with a value
// of 0 or more for each.
func newTrie(values map[string]int32) (*trie, error) {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	nodes, last := 1, ""
	for _, key := range keys {
		same := 0
		for same < min(len(key), len(last)) && key[same] == last[same] {
			same++
		}
		nodes += len(key) - same
		last = key
	}
	if nodes > maxTrie {
		return nil, fmt.Errorf("%d different beginnings of tokens: more than %d are not accepted", nodes, maxTrie)
	}
	t := &trie{label: make([]byte, 1, nodes), value: make([]int32, 1, nodes), first: make([]uint32, 0, nodes+1)}
	t.value[0] = -1
	// The keys below each node: from, to, and how many bytes led there.
	type part struct{ from, to, depth int32 }
	level, next := []part{{0, int32(len(keys)), 0}}, []part(nil)
	for len(level) > 0 {
		next = next[:0]
		for _, p := range level {
			t.first = append(t.first, uint32(len(t.label)))
			for i := p.from; i < p.to; {
				c := keys[i][p.depth]
				end := i + 1
				for end < p.to && keys[end][p.depth] == c {
					end++
				}
				t.label = append(t.label, c)
				value := int32(-1)
				if len(keys[i]) == int(p.depth)+1 { // the shortest sorts first
					value = values[keys[i]]
					i++
				}
				t.value = append(t.value, value)
				next = append(next, part{i, end, p.depth + 1})
				i = end
			}
		}
		level, next = next, level
	}
	t.first = append(t.first, uint32(len(t.label)))
	for c := t.first[0]; c < t.first[1]; c++ {
		t.root[t.label[c]] = c
	}
	return t, nil
}

// step returns the node that a byte leads to from a node, or 0.
func (t *trie) step(node uint32, c byte) uint32 {
	if node == 0 {
		return t.root[c]
	}
	from, to := t.first[node], t.first[node+1]
	labels := t.label[from:to]
	if len(labels) > 8 {
		i := sort.Search(len(labels), func(i int) bool { return labels[i] >= c })
		if i < len(labels) && labels[i] == c {
			return from + uint32(i)
		}
		return 0
	}
	for i, l := range labels {
		if l == c {
			return from + uint32(i)
		}
	}
	return 0
}
