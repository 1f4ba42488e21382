package network

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// CalicoBGP is Calico without encapsulation: BIRD tells the nodes' routes, through route reflectors.
const CalicoBGP = "calico-bgp"

// CalicoTypha is Calico over VXLAN whose agents go through Typha.
const CalicoTypha = "calico-typha"

// Peers is the part of CalicoBGP that can be applied when Calico's kinds are known.
const Peers = "calico-peers"

// Operator is Calico's operator by its own manifest, with another program in the container: the operator's cannot be
// had.
const Operator = "tigera-operator"

// OperatorCRDs defines what the operator acts on, and Calico's own objects; OperatorObjects are the Installation and
// what else it is to make.
const (
	OperatorCRDs    = "operator-crds"
	OperatorObjects = "custom-resources"
)

// MasterLabel is what kubeadm marked control planes with until Kubernetes 1.24 took it off all of them, and
// controlPlaneLabel what it marks them with since 1.20.
const (
	MasterLabel       = "node-role.kubernetes.io/master"
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
)

// reflectors is how many nodes of a CalicoBGP lab, from the first on, are route reflectors.
const reflectors = 3

// NodeMarks returns the labels and annotations that node n, which counts from 1, has for its network.
func NodeMarks(network string, n int) (labels, annotations map[string]string) {
	if network != CalicoBGP || n > reflectors {
		return nil, nil
	}
	return map[string]string{MasterLabel: "", controlPlaneLabel: ""},
		map[string]string{"projectcalico.org/RouteReflectorClusterID": "244.0.0.1"}
}

// calico is upstream's manifest for VXLAN without BGP, as its documentation tells a user to edit it:
// the pool's CIDR, and encapsulation everywhere.
func calico(params Params) ([]byte, error) {
	return calicoManifest(params, "calico-vxlan.yaml",
		value("CALICO_IPV4POOL_VXLAN", "CrossSubnet", "Always"))
}

// calicoBGP is upstream's manifest for BGP, without its encapsulation.
func calicoBGP(params Params) ([]byte, error) {
	return calicoManifest(params, "calico.yaml",
		value("CALICO_IPV4POOL_IPIP", "Always", "Never"))
}

// calicoTypha is upstream's manifest for Typha, over VXLAN and without BGP.
func calicoTypha(params Params) ([]byte, error) {
	return calicoManifest(params, "calico-typha.yaml",
		value("CALICO_IPV4POOL_IPIP", "Always", "Never"),
		value("CALICO_IPV4POOL_VXLAN", "Never", "Always"),
		phrase.Edit{From: `calico_backend: "bird"`, To: `calico_backend: "vxlan"`},
		// Nothing but Felix is to be alive and ready; it may be asked twice.
		phrase.Edit{From: "- -bird-live", To: "- -felix-live"},
		phrase.Edit{From: "- -bird-ready", To: "- -felix-ready"})
}

// value gives a variable of calico-node another value.
func value(name, from, to string) phrase.Edit {
	line := "- name: " + name + indent + "  value: "
	return phrase.Edit{From: line + strconv.Quote(from), To: line + strconv.Quote(to)}
}

// calicoManifest is a manifest of upstream with the pool's CIDR.
func calicoManifest(params Params, file string, edits ...phrase.Edit) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("calico needs a pod CIDR")
	}
	return calicoUpstream(params, file, append([]phrase.Edit{
		{
			From: "# - name: CALICO_IPV4POOL_CIDR" + indent + `#   value: "192.168.0.0/16"`,
			To:   "- name: CALICO_IPV4POOL_CIDR" + indent + fmt.Sprintf(`  value: %q`, params.PodCIDR),
		},
		withoutBPF,
	}, edits...))
}

// calicoOperator is upstream's manifest of the operator, whose program waits and does nothing.
func calicoOperator(params Params) ([]byte, error) {
	return calicoUpstream(params, "tigera-operator.yaml", []phrase.Edit{{From: "- operator\n", To: "- /pause\n"}})
}

// calicoAfterFlannel is upstream's manifest for a cluster whose nodes Calico's flannel migration controller
// takes over one by one. The pool is the controller's to make.
func calicoAfterFlannel(params Params) ([]byte, error) {
	return calicoUpstream(params, "flannel-migration/calico.yaml", []phrase.Edit{withoutBPF})
}

// indent is that of a container's environment in Calico's manifests.
const indent = "\n            "

// withoutBPF is the lab's own line: its Felix is built without cgo, cannot load the BPF library, and must not
// try to detach old BPF programs with it.
var withoutBPF = phrase.Edit{
	From: `- name: FELIX_HEALTHENABLED`,
	To:   `- name: FELIX_DebugSkipCTLBCleanup` + indent + `  value: "true"` + indent + `- name: FELIX_HEALTHENABLED`,
}

func calicoUpstream(params Params, file string, edits []phrase.Edit) ([]byte, error) {
	return upstream(params, cmp.Or(params.Calico, "calico"), "github.com/projectcalico/calico",
		"manifests/"+file, edits)
}
