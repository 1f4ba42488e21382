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

// Names of what a takeover needs.
const (
	poolName        = "default-ipv4-ippool" // as calico-node itself would name it
	reservationName = "theseus-reserved"
)

// attachment is how pods hang on Calico: by a veth pair without a bridge, whose packets Felix drops until the
// chains of that interface are there, in iptables and in nftables alike.
func attachment(conf string) *step.Attachment {
	return &step.Attachment{
		Conf:   []string{conf + cni.StagedSuffix, conf},
		Strict: true,
		Ready:  []string{"cali-tw-{link}", "cali-fw-{link}"},
	}
}

// takeOver refuses what Calico cannot do. Its blocks of addresses hold 1 to 4096, and a pool at least one of them.
func (m *manifest) takeOver(request cni.Request) error {
	bits := request.Takeover.NodeBits
	if bits < 20 || bits > 32 {
		return cni.Unadoptable(fmt.Sprintf("each node's range has a prefix of %d bits, and Calico's blocks of addresses have 20 to 32", bits))
	}
	for _, cidr := range rangesOf(request) {
		if prefix, err := netip.ParsePrefix(cidr); err != nil || !prefix.Addr().Is4() || prefix.Bits() > bits {
			return cni.Unadoptable(fmt.Sprintf("the range %s of %s is no IPv4 range that holds a node's own", cidr, request.Source.CNI))
		}
	}
	if !slices.ContainsFunc(m.definitions, func(d unstructured.Unstructured) bool {
		resource, group, _ := strings.Cut(d.GetName(), ".")
		return resource == "ipreservations" && cluster.IsCalico(group)
	}) {
		return refuse("the manifest does not define IPReservations, without which new pods could get an address of the node itself",
			"Calico v3.22 and later define them; where its definitions are a file of their own, give both in one: cat crds.yaml calico.yaml > all.yaml")
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

// pools are the ranges that are taken over: their blocks are the nodes' ranges, so that the first address that is
// taken over claims its node's range for that node. Each selects only nodes whose range is within it, since calico-node
// takes the tunnel's address from the first pool that has a tunnel and selects its node.
func pools(request cni.Request, api string) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for i, cidr := range rangesOf(request) {
		all = append(all, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": api,
			"kind":       "IPPool",
			"metadata":   map[string]any{"name": poolNameOf(i)},
			"spec": map[string]any{
				"cidr": cidr, "blockSize": int64(request.Takeover.NodeBits), "natOutgoing": !request.Source.Capabilities.KeepsSources,
				"vxlanMode": "Never", "ipipMode": "Never", "nodeSelector": v1alpha1.LabelAdopted + ` == "` + cni.AdoptedValue(cidr) + `"`,
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

// adoption has an action for each pool. Two pools must not get their tunnels at once: what gives a node its tunnel's address
// passes over a change that it hears of while it still looks at the one before, and the node never gets one (seen with
// v3.31.0; reconciler.OnUpdates of node/pkg/allocateip does not wait for its reader).
func adoption(request cni.Request, api string) *cni.Adoption {
	made := pools(request, api)
	patches := func(title string, value any) []step.Action {
		var all []step.Action
		for i, cidr := range rangesOf(request) {
			ref := step.RefOf(&made[i])
			all = append(all, step.Action{Op: step.Patch, Title: fmt.Sprintf(title, cidr), Ref: &ref, Patch: cni.Raw(value)})
		}
		return all
	}
	reserved := step.Ref{APIVersion: api, Kind: "IPReservation", Name: reservationName}
	stays := step.Action{Op: step.Patch, Title: "leave the reservation of the nodes' former addresses, which connections may still have", Ref: &reserved,
		Patch: cni.Raw(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}}})}
	mode := func(mode string) any { return map[string]any{"spec": map[string]any{"vxlanMode": mode}} }
	return &cni.Adoption{
		Pools: made,
		Carry: patches("let calico carry %s between nodes", mode("Always")),
		Drop:  patches("let calico carry %s no more", mode("Never")),
		Settle: append(patches("let calico give addresses of %s on every node", map[string]any{
			"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}},
			"spec":     map[string]any{"nodeSelector": "all()"},
		}), stays),
	}
}

// fitTakeover makes what calico-node would make of the range by itself the same as what is made here.
func (m *manifest) fitTakeover(takeover *cni.Takeover) {
	setEnv(cni.FindContainer(m.agent, "containers", agentName), "CALICO_IPV4POOL_BLOCK_SIZE", strconv.Itoa(takeover.NodeBits))
}

// keepName names what keeps Felix from forgetting connections, and keepPath is where the shell and every
// program's own search look for a program first.
const (
	keepName = "theseus-keep-connections"
	keepPath = "/usr/local/sbin/conntrack"
)

// keepScript stands in for the program that Felix runs.
const keepScript = `#!/bin/sh
# calico-node asks for a pod's connections to be forgotten when the pod leaves it. While pods are moved from one
# network to another they live on, and so do their connections.
exit 0
`

// keepConnections lets Felix delete no entries of connection tracking. It does so for a pod's address as soon as it
// has no route of its own to it any more (felix/routetable, ConntrackCleanupManager), which is right for a pod that
// ended, and resets every connection through a Service of one that was moved away. There is no setting for it.
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
