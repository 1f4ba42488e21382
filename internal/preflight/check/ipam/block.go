package ipam

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// block is the part of Calico's IPAMBlock that the checks need (model.AllocationBlock in libcalico-go).
type block struct {
	prefix    netip.Prefix
	node      string // to which it has an affinity; empty without one
	allocated int
	pods      []held
	handles   []string // of the addresses that are allocated
}

// held is an address that is held for a pod.
type held struct {
	address netip.Addr
	name    string // namespace/name
}

func readBlock(object *unstructured.Unstructured) (block, bool) {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	text, _ := spec["cidr"].(string)
	prefixes := check.Prefixes(text)
	if len(prefixes) != 1 {
		return block{}, false
	}
	b := block{prefix: prefixes[0]}
	affinity, _ := spec["affinity"].(string)
	b.node, _ = strings.CutPrefix(affinity, "host:")
	attributes, _ := spec["attributes"].([]any)
	allocations, _ := spec["allocations"].([]any)
	address := b.prefix.Addr()
	for _, allocation := range allocations {
		if index, ok := allocation.(int64); ok {
			b.allocated++
			if index >= 0 && int(index) < len(attributes) {
				b.hold(address, attributes[index])
			}
		}
		address = address.Next()
	}
	return b, true
}

// hold records the handle and the pod of an address. Addresses of tunnels and reserved addresses have no pod.
func (b *block) hold(address netip.Addr, attribute any) {
	fields, _ := attribute.(map[string]any)
	if handle, _ := fields["handle_id"].(string); handle != "" {
		b.handles = append(b.handles, handle)
	}
	namespace, _, _ := unstructured.NestedString(fields, "secondary", "namespace")
	pod, _, _ := unstructured.NestedString(fields, "secondary", "pod")
	if pod != "" {
		b.pods = append(b.pods, held{address, namespace + "/" + pod})
	}
}
