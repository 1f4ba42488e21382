package admission

import (
	"cmp"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// Memory is what a controller may use, in bytes; 0 means the limit that the chart sets.
type Memory int64

const (
	chartMemory Memory = 1 << 30
	// baseMemory is for everything but a plan and the snapshot that it is made from.
	baseMemory Memory = 100 << 20
	// perNode is the memory for planning, for each node: 1.5 GiB for 5,000 (docs/results.md).
	perNode Memory = 300 << 10
	// perByte is the memory for reading a plan, for each byte of it with its steps written out: 1.3 to 1.8 bytes are
	// kept, and 12 allocated on the way, which the collector keeps below a half.
	perByte Memory = 6
)

// PlanBytes is the size of the largest plan that the controller reads, unpacked.
func (m Memory) PlanBytes() int {
	return int(max(cmp.Or(m, chartMemory)-baseMemory, 0) / perByte)
}

// FitsNodes returns a *Refusal if a plan for so many nodes needs more memory than the controller has.
func (m Memory) FitsNodes(nodes int64) error {
	m = cmp.Or(m, chartMemory)
	need := baseMemory + perNode*Memory(nodes)
	if need <= m {
		return nil
	}
	return Refuse(v1alpha1.ReasonTooLarge, fmt.Sprintf(
		"set resources.limits.memory of the chart to %s, or plan with `theseus plan` at a command line", need),
		"the controller has %s of memory; a plan for %s needs about %s", m, cluster.Count(int(nodes), "node"), need)
}

// FitsPlan returns a *Refusal if the text of a plan is larger than what the controller reads.
func (m Memory) FitsPlan(name string, bytes int) error {
	if bytes <= m.PlanBytes() {
		return nil
	}
	m = cmp.Or(m, chartMemory)
	need := baseMemory + perByte*Memory(bytes)
	return Refuse(v1alpha1.ReasonTooLarge, fmt.Sprintf(
		"set resources.limits.memory of the chart to %s, or run the plan with `theseus` at a command line", need),
		"the controller has %s of memory; reading the plan %s needs about %s", m, name, need)
}

// String is the memory in Kubernetes' notation, rounded up.
func (m Memory) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("%dMi", (m+mib-1)/mib)
}
