package policy

import (
	"net/netip"
	"slices"
)

// set is the pods that a selector selects. Equal selectors share one.
type set struct {
	key   string
	scope scope
	// hosts says whether it holds the addresses of nodes, and so pods on the host network.
	hosts match

	classes []int32 // indices, sorted
	asked   *split
}

// scope is what a set selects; the zero value is all pods.
type scope struct {
	// namespace is the only one, or empty.
	namespace string
	// inNamespace and pod may be nil.
	inNamespace func(*namespace) bool
	pod         func(*class) bool
	// label is one that every pod in the set has, with one of the values, where it is not empty: it makes them
	// quick to find.
	label  string
	values []string
	// labels are the keys that pod looks at; accounts is true when it looks at service accounts.
	labels   []string
	accounts bool
	nobody   bool
}

func (s *set) empty() bool { return len(s.classes) == 0 && s.hosts == no }

func (s *set) hasClass(c *class) match {
	if _, ok := slices.BinarySearch(s.classes, c.index); ok {
		return yes
	}
	return no
}

func (s *set) has(e *endpoint) match {
	if e.class == nil {
		return s.hosts
	}
	return s.hasClass(e.class)
}

// net is a list of address ranges. Equal lists share one.
type net struct {
	prefixes []netip.Prefix
	ranges   spans
	asked    [2][2]*split
}

// split is a yes-or-no question about endpoints in the shorter form: the usual answer, and who differs.
type split struct {
	usual  match
	except []exception
}

type exception struct {
	endpoint int32
	answer   match
}
