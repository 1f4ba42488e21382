package calico

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names of the objects for a takeover.
const (
	poolName        = "default-ipv4-ippool" // as calico-node itself would name it
	reservationName = "theseus-reserved"
)

// attachment says how pods are attached with Calico: by a veth pair without a bridge. Felix drops its packets until the
// chains of that interface exist, in iptables and in nftables.
func attachment(conf string) *step.Attachment {
	return &step.Attachment{
		Conf:   []string{conf + cni.StagedSuffix, conf},
		Strict: true,
		Ready:  []string{"cali-tw-{link}", "cali-fw-{link}"},
	}
}

// takeOver refuses ranges that Calico cannot take over. Its address blocks have 1 to 4096 addresses, and a pool has at
// least one block.
func (m *manifest) takeOver(request cni.Request) error {
	bits := request.Takeover.NodeBits
	if bits < 20 || bits > 32 {
		return cni.Unadoptable(fmt.Sprintf(
			"each node's range has a prefix of %d bits, and Calico's blocks of addresses have 20 to 32", bits))
	}
	for _, cidr := range rangesOf(request) {
		if prefix, err := netip.ParsePrefix(cidr); err != nil || !prefix.Addr().Is4() || prefix.Bits() > bits {
			return cni.Unadoptable(fmt.Sprintf("the range %s of %s is not an IPv4 range that contains a node's "+
				"own range",
				cidr, request.Source.CNI))
		}
	}
	if !slices.ContainsFunc(m.definitions, func(d unstructured.Unstructured) bool {
		resource, group, _ := strings.Cut(d.GetName(), ".")
		return resource == "ipreservations" && cluster.IsCalico(group)
	}) {
		return refuse("the manifest does not define IPReservations, so new pods could get an address of the node "+
			"itself",
			"Calico v3.22 and later define them; if the CRDs are a separate file, put both files into one: cat "+
				"crds.yaml "+
				"calico.yaml > all.yaml")
	}
	return nil
}

// rangesOf are the ranges of Calico's pods: those of the source where it takes over its pods.
func rangesOf(request cni.Request) []string {
	if request.Takeover != nil {
		return request.Source.PodCIDRs
	}
	return []string{request.PodCIDR}
}

// pools are the IPPools for the ranges that are taken over. Their blocks are the nodes' ranges, so the first address
// that is taken over on a node claims the node's range for it. Each pool selects only nodes whose range is within it,
// because calico-node takes the tunnel address from the first pool with a tunnel that selects its node.
func pools(request cni.Request, api string) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for i, cidr := range rangesOf(request) {
		all = append(all, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": api,
			"kind":       "IPPool",
			"metadata":   map[string]any{"name": poolNameOf(i)},
			"spec": map[string]any{
				"cidr": cidr, "blockSize": int64(request.Takeover.NodeBits),
				"natOutgoing": !request.Source.Capabilities.KeepsSources, "vxlanMode": "Never", "ipipMode": "Never",
				"nodeSelector": v1alpha1.LabelAdopted + ` == "` +
					cni.AdoptedValue(cidr) + `"`,
			},
		}})
	}
	cni.Label(all)
	return all
}

func poolNameOf(i int) string {
	if i == 0 {
		return poolName
	}
	return fmt.Sprintf("%s-%d", poolName, i+1)
}

func reservation(takeover *cni.Takeover, api string) []unstructured.Unstructured {
	var cidrs []any
	for _, cidr := range takeover.Reserved {
		cidrs = append(cidrs, cidr)
	}
	all := []unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": api,
		"kind":       "IPReservation",
		"metadata":   map[string]any{"name": reservationName},
		"spec":       map[string]any{"reservedCIDRs": cidrs},
	}}}
	cni.Label(all)
	return all
}

// adoption has an action for each pool. Two pools must not get their tunnels at once: the allocator of tunnel addresses
// drops a change that arrives while it handles the previous one, and the node never gets a tunnel address (seen with
// v3.31.0; reconciler.OnUpdates of node/pkg/allocateip does not wait for its reader).
func adoption(request cni.Request, api string) *cni.Adoption {
	made := pools(request, api)
	patches := func(title string, value any) []step.Action {
		var all []step.Action
		for i, cidr := range rangesOf(request) {
			ref := step.RefOf(&made[i])
			all = append(all, step.Action{Do: step.Patch{
				Ref: ref, Merge: cni.Raw(value)}, Title: fmt.Sprintf(title, cidr)})
		}
		return all
	}
	reserved := step.Ref{APIVersion: api, Kind: "IPReservation", Name: reservationName}
	stays := step.Action{Do: step.Patch{
		Ref: reserved, Merge: cni.Raw(
			map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}}})},
		Title: "keep the reservation of the nodes' former addresses, which connections may still use"}
	mode := func(mode string) any { return map[string]any{"spec": map[string]any{"vxlanMode": mode}} }
	return &cni.Adoption{
		Pools: made,
		Carry: patches("let Calico route %s between nodes", mode("Always")),
		Drop:  patches("stop Calico from routing %s between nodes", mode("Never")),
		Settle: append(patches("let Calico assign addresses from %s on every node", map[string]any{
			"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}},
			"spec":     map[string]any{"nodeSelector": "all()"},
		}), stays),
	}
}

// fitTakeover makes calico-node's own settings for the range equal to those made here.
func (m *manifest) fitTakeover(takeover *cni.Takeover) {
	setEnv(cni.FindContainer(m.agent, "containers", agentName), "CALICO_IPV4POOL_BLOCK_SIZE",
		strconv.Itoa(takeover.NodeBits))
}

// keepName names the objects that keep Felix from deleting conntrack entries, and keepPath is a path that shells and
// programs search first for an executable.
const (
	keepName = "theseus-keep-connections"
	keepPath = "/usr/local/sbin/conntrack"
)

// keepScript replaces the program conntrack that Felix runs.
const keepScript = `#!/bin/sh
# calico-node asks for a pod's connections to be forgotten when the pod leaves it. While pods are moved from one
# network to another they live on, and so do their connections.
exit 0
`

// keepConnections prevents Felix from deleting conntrack entries. Felix deletes the entries of a pod's address as soon
// as it removes its own route to the pod (felix/routetable, ConntrackCleanupManager). That is right for a deleted pod,
// but resets all connections through a Service to a pod that was moved away. Felix has no setting for it.
func (m *manifest) keepConnections() {
	keep := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": keepName, "namespace": m.agent.GetNamespace()},
		"data":       map[string]any{"conntrack": keepScript},
	}}
	add := func(object map[string]any, value map[string]any, fields ...string) {
		list, _, _ := unstructured.NestedSlice(object, fields...)
		_ = unstructured.SetNestedSlice(object, append(list, value), fields...) // the path is through maps
	}
	add(m.agent.Object, map[string]any{
		"name": keepName, "configMap": map[string]any{"name": keepName, "defaultMode": int64(0o755)},
	}, "spec", "template", "spec", "volumes")
	add(cni.FindContainer(m.agent, "containers", agentName), map[string]any{
		"name": keepName, "mountPath": keepPath, "subPath": "conntrack", "readOnly": true,
	}, "volumeMounts")
	m.objects = append(m.objects, keep)
}
