package mlpackage

import (
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml/internal/bundle"
)

const (
	manifestName    = "Manifest.json"
	manifestVersion = "1.0.0"
	dataFolder      = "Data"
	author          = "com.apple.CoreML"
	specName        = "model.mlmodel"
	// maxManifest is far above the few hundred bytes of a real one.
	maxManifest = 1 << 20
)

// manifest lists the items of a package.
type manifest struct {
	Version string          `json:"fileFormatVersion"`
	Items   map[string]item `json:"itemInfoEntries"`
	Root    string          `json:"rootModelIdentifier"`
}

// item is a file or folder of a package. Pointers tell a missing entry,
// which is an error, from an empty one, which is not.
type item struct {
	Author      *string `json:"author"`
	Description *string `json:"description"`
	Name        *string `json:"name"`
	Path        *string `json:"path"` // under Data, with slashes
}

// parseManifest reads Manifest.json and checks what Core ML checks: a format
// version of three numbers not above 1.0.0, items with all four entries whose
// paths stay inside the package, and a root model among them.
func parseManifest(b []byte) (*manifest, error) {
	m := &manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if err := checkVersion(m.Version); err != nil {
		return nil, err
	}
	for id, it := range m.Items {
		for _, e := range []struct {
			name  string
			value *string
		}{{"author", it.Author}, {"description", it.Description}, {"name", it.Name}, {"path", it.Path}} {
			if e.value == nil {
				return nil, fmt.Errorf("item %q has no %q", id, e.name)
			}
		}
		if !bundle.Local(*it.Path) {
			return nil, fmt.Errorf("item %q: path %q leads out of the package", id, *it.Path)
		}
	}
	if m.Root == "" {
		return nil, errors.New(`no "rootModelIdentifier"`)
	}
	if _, ok := m.Items[m.Root]; !ok {
		return nil, fmt.Errorf("the root model %q is not among the items", m.Root)
	}
	return m, nil
}

func checkVersion(s string) error {
	var v [3]int
	parts := strings.Split(s, ".")
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil || len(parts) != 3 {
			return fmt.Errorf(`"fileFormatVersion" is %q, want three numbers such as %q`, s, manifestVersion)
		}
		v[i] = int(n)
	}
	if slices.Compare(v[:], []int{1, 0, 0}) > 0 {
		return fmt.Errorf(`"fileFormatVersion" %s is newer than %s`, s, manifestVersion)
	}
	return nil
}

// newManifest returns the bytes of Manifest.json of a package with the given
// files of weights, whose paths are relative to the specification. Keys must
// be distinct UUIDs; these are made from the content, so that the same model
// gives the same file.
func newManifest(digest []byte, weights []string) ([]byte, error) {
	m := manifest{Version: manifestVersion, Items: map[string]item{}}
	add := func(description, name, path string) string {
		id, a := uuid(digest, path), author
		m.Items[id] = item{Author: &a, Description: &description, Name: &name, Path: &path}
		return id
	}
	m.Root = add("CoreML Model Specification", specName, author+"/"+specName)
	for _, file := range weights {
		// The item is the folder beside the specification.
		top, _, _ := strings.Cut(file, "/")
		add("CoreML Model Weights", top, author+"/"+top)
	}
	b, err := json.MarshalIndent(m, "", "    ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// uuid returns a name-based UUID (version 5) for an item of a package.
func uuid(digest []byte, path string) string {
	// The name space is RFC 9562's for URLs.
	h := sha1.New()
	h.Write([]byte{0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8})
	fmt.Fprintf(h, "mlpackage:%x/%s", digest, path)
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%X-%X-%X-%X-%X", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
