package policy

import (
	"net/netip"
	"slices"
)

// set is the set of pods that a selector selects. Equal selectors share a set.
type set struct {
	key   string
	scope scope
	// hosts says whether it contains the addresses of nodes, and so hostNetwork pods.
	hosts match
	// own says the same of the node of the pod at the other end, to which only an egress policy may apply.
	own match
	// outside says which addresses outside of the cluster it contains; nil for none.
	outside func(netip.Addr) match

	classes []int32 // indices, sorted
	asked   *split
}

// scope describes which pods a set selects; the zero value is all pods.
type scope struct {
	// namespace is the only namespace, or empty.
	namespace string
	// inNamespace and pod may be nil.
	inNamespace func(*namespace) bool
	pod         func(*class) bool
	// label, if not empty, is a label that every pod in the set has with one of the values. It allows an index lookup.
	label  string
	values []string
	// labels are the keys that pod uses; accounts is true if it uses service accounts.
	labels   []string
	accounts bool
	nobody   bool
}

func (s *set) empty() bool { return len(s.classes) == 0 && s.hosts == no && s.own == no }

func (s *set) hasClass(c *class) match {
	if _, ok := slices.BinarySearch(s.classes, c.index); ok {
		return yes
	}
	return no
}

func (s *set) has(e *endpoint) match {
	if e.outside.IsValid() {
		if s.outside == nil {
			return no
		}
		return s.outside(e.outside)
	}
	if e.class == nil {
		return s.hosts
	}
	return s.hasClass(e.class)
}

// net is a list of address ranges. Equal lists share memory.
type net struct {
	prefixes []netip.Prefix
	ranges   spans
	asked    [2][2]*split
}

// split is the answer to a yes-or-no question about all endpoints in a compact form: the usual answer, and the
// exceptions.
type split struct {
	usual  match
	except []exception
}

type exception struct {
	endpoint int32
	answer   match
}
