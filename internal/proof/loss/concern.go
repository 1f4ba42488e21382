package loss

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Sample is how many nodes that a change does not concern a gate asks besides. A fault on one in ten of the others
// escapes a sample of 32 in 3 of 100 cases (docs/explanation/many-nodes.md); what escapes it is found by the reports
// that all nodes go on to write.
const Sample = 32

// Concerned are the nodes that must report freshly after a change of some: these, those that measure them or are
// measured by them, and a sample of the others, another one for each salt. It is nil, which means all nodes, if that
// would be more than half of them.
func Concerned(paths []v1alpha1.Path, changed []string, salt string) map[string]bool {
	if len(changed) == 0 {
		return nil
	}
	own, concerned, sources := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, node := range changed {
		own[node] = true
	}
	for i := range paths {
		from, to := paths[i].Source.Node, paths[i].Target.Node
		sources[from] = true
		if own[from] || own[to] {
			concerned[from] = true
			if to != "" {
				concerned[to] = true
			}
		}
	}
	var others []string
	for node := range sources {
		if !concerned[node] {
			others = append(others, node)
		}
	}
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(draw(salt, a), draw(salt, b)), cmp.Compare(a, b))
	})
	for _, node := range others[:min(Sample, len(others))] {
		concerned[node] = true
	}
	if 2*len(concerned) > len(sources) {
		return nil
	}
	return concerned
}

// draw is a node's place in the lottery of a salt.
func draw(salt, node string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(salt + "\x00" + node)) // never fails
	x := sum.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd // FNV alone keeps similar names together
	return x ^ x>>33
}

// Hearing knows when each node was last heard of, by the clock of the process that looks. The zero value has heard of
// none. It serves several goroutines.
type Hearing struct {
	lock   sync.Mutex
	of     map[string]heard
	looked time.Time
}

type heard struct {
	seq int64
	at  time.Time // zero if only one report was seen, whose age is unknown
}

// Look takes the latest reports. A node whose report is another one than before was heard of since the look before: it
// may have been silent from then on, so that counts.
func (h *Hearing) Look(reports []v1alpha1.ProbeReport, now time.Time) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.of == nil {
		h.of = make(map[string]heard, len(reports))
	}
	for i := range reports {
		node, seq := reports[i].Name, reports[i].Status.Seq
		last, known := h.of[node]
		switch {
		case !known:
			h.of[node] = heard{seq: seq}
		case seq != last.seq:
			h.of[node] = heard{seq, h.looked}
		}
	}
	h.looked = now
}

// Silent is how long ago a node was last heard of: for ever, if its reports were never seen to change.
func (h *Hearing) Silent(node string, now time.Time) time.Duration {
	h.lock.Lock()
	defer h.lock.Unlock()
	if last := h.of[node]; !last.at.IsZero() {
		return now.Sub(last.at)
	}
	return longAgo
}
