package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OS is a version of one of Apple's systems, as far as Core ML is concerned.
type OS struct {
	Name string // as people write it, such as "iOS 18"
	// Spec is the newest specification version that it loads.
	Spec int
	// Format is the newest version of the compiled format that it loads.
	Format int
	// Phone says that iPhones run it.
	Phone bool
}

// IsZero reports whether no system is named.
func (o OS) IsZero() bool { return o.Name == "" }

// generation is a year's systems: their versions, what they load.
type generation struct {
	ios, macos, watchos, visionos int
	spec, format                  int
}

// generations of systems. What each loads is from the "availability" that
// Apple's compiler writes for a specification version; that a system refuses
// compiled models of a newer format was measured for format 9 with macOS 14
// ("compiler major version for compiled model is 9.0.0 and is more recent than
// this framework major version 8.0.0"), 15 and 26.
var generations = []generation{
	{15, 12, 8, 0, 6, 5},
	{16, 13, 9, 0, 7, 5},
	{17, 14, 10, 1, 8, 8},
	{18, 15, 11, 2, 9, 9},
	{26, 26, 26, 26, 10, 9},
}

var osPattern = regexp.MustCompile(`^(ios|ipados|tvos|macos|watchos|visionos) ?(\d+)(\.\d+)*$`)

// ParseOS reads a name such as "ios18", "macOS 15.2" or "visionos2". Minor
// versions make no difference.
func ParseOS(s string) (OS, error) {
	m := osPattern.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return OS{}, fmt.Errorf("%q is no system: wanted a name and a version, such as ios18 or macos15", s)
	}
	version, err := strconv.Atoi(m[2])
	if err != nil || version > 1000 {
		return OS{}, fmt.Errorf("%q: %s is no version", s, m[2])
	}
	names := map[string]string{"ios": "iOS", "ipados": "iPadOS", "tvos": "tvOS", "macos": "macOS", "watchos": "watchOS", "visionos": "visionOS"}
	number := func(g generation) int {
		switch m[1] {
		case "macos":
			return g.macos
		case "watchos":
			return g.watchos
		case "visionos":
			return g.visionos
		}
		return g.ios
	}
	first, last := number(generations[slices.IndexFunc(generations, func(g generation) bool { return number(g) > 0 })]), number(generations[len(generations)-1])
	if version < first {
		return OS{}, fmt.Errorf("%s %d has no ML Programs: they came with %s %d", names[m[1]], version, names[m[1]], first)
	}
	o := OS{Name: fmt.Sprintf("%s %d", names[m[1]], version), Phone: m[1] == "ios"}
	for _, g := range generations {
		if n := number(g); n > 0 && n <= version {
			o.Spec, o.Format = g.spec, g.format
		}
	}
	if version > last {
		// What a system of the future loads is not known, but not less.
		o.Spec, o.Format = 1<<30, 1<<30
	}
	return o, nil
}

// firstSystems names the systems that first load a specification version.
func firstSystems(spec int) string {
	for _, g := range generations {
		if g.spec == spec {
			return fmt.Sprintf("iOS %d and macOS %d", g.ios, g.macos)
		}
	}
	return "a later system"
}
