package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/pool"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

// Pools says from which IPPool pods go to which.
type Pools struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Stays is true where From keeps the addresses of the nodes' tunnels.
	Stays bool `json:"stays,omitempty"`
}

// makePool plans another IPPool for the pods of the network in place, or returns a *Refusal.
func makePool(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, findings []finding.Finding, options Options) (*Plan, error) {
	if change.To != "" || change.Strategy != "" || change.PodCIDR != "" || change.Reflectors != "" || RollsOut(change) {
		return nil, refuse("make two plans, one after the other", "pods get another pool by a plan of their own")
	}
	source, err := calicoReady(snapshot, change, drivers, "--pool is for clusters on Calico")
	if err != nil {
		return nil, err
	}
	old, err := onlyPool(snapshot)
	if err != nil {
		return nil, err
	}
	cidr, err := freeRange(snapshot, change.Pool)
	if err != nil {
		return nil, err
	}
	if err := notOperators(snapshot, source, old); err != nil {
		return nil, err
	}
	if asks := asking(snapshot); len(asks) > 0 {
		return nil, refuse("take the annotations away; when the change is done, the new pool or addresses of it can be asked for", "addresses of a pool of their own are asked for: %s", some(asks))
	}
	waves, err := countedWaves(snapshot, change)
	if err != nil {
		return nil, err
	}
	// What counts for pods is one pool, whatever others there are for something else.
	source.PodCIDRs = []string{textOf(old, "cidr")}
	outlook := joint.Survey(snapshot, source.PodCIDRs, waves, nil)
	if err := movable(outlook, source); err != nil {
		return nil, err
	}
	target := *source
	target.PodCIDRs = []string{cidr.String()}
	if masquerade := source.Capabilities.Masquerade; masquerade != nil && slices.Contains(masquerade.From, source.PodCIDRs[0]) {
		target.Capabilities.Masquerade = &cni.Masquerade{From: target.PodCIDRs, Except: target.PodCIDRs}
	}
	pools := poolsOf(old, cidr)
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: target}, Change: change, Waves: waves, Outlook: outlook}
	p := begun(snapshot, change, options, pool.Name, "both pools are of one network, which carries them side by side while pods are created again")
	p.Source, p.Target, p.Waves = *source, target, wavesOf(waves)
	p.Steps, p.Workloads, p.Findings = pool.Steps(in, pools), workloadsOf(outlook.Workloads), findings
	p.Pools = &Pools{From: old.GetName(), To: pools.New.GetName(), Stays: pools.Stays}
	return p.sealed(snapshot, "pool", outlook.PerNode)
}

func textOf(pool *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(pool.Object, "spec", field)
	return value
}

// podPool is the one that pods have their addresses of.
func podPool(snapshot *cluster.Snapshot) (*unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, object := range snapshot.Calico("IPPool") {
		disabled, _, _ := unstructured.NestedBool(object.Object, "spec", "disabled")
		uses, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "allowedUses")
		if prefix, err := netip.ParsePrefix(textOf(&object, "cidr")); err == nil && prefix.Addr().Is4() && !disabled && (len(uses) == 0 || slices.Contains(uses, "Workload")) {
			found = append(found, object)
		}
	}
	if len(found) != 1 {
		return nil, refuse("kubectl get "+snapshot.CalicoResource("ippools")+"; disable those that pods should not be in", "pods get addresses of %d IPv4 IPPools, and of one a plan can be made", len(found))
	}
	return &found[0], nil
}

// onlyPool is podPool, where pods can be moved from it.
func onlyPool(snapshot *cluster.Snapshot) (*unstructured.Unstructured, error) {
	old, err := podPool(snapshot)
	switch {
	case err != nil:
		return nil, err
	case textOf(old, "ipipMode") != "" && textOf(old, "ipipMode") != "Never":
		return nil, refuse("Calico's documentation has a procedure by hand: migrate from one IP pool to another (its objects are "+snapshot.CalicoResource("ippools")+" for kubectl)", "IPPool %s encapsulates by IPIP, which was never tried with two pools", old.GetName())
	case textOf(old, "namespaceSelector") != "":
		return nil, refuse("take its namespaceSelector away first", "IPPool %s is for some namespaces alone", old.GetName())
	}
	return old, nil
}

// freeRange reads the new range, and refuses one that somebody has.
func freeRange(snapshot *cluster.Snapshot, text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() > 26 || cidr != cidr.Masked() {
		return cidr, refuse("give a free one, such as 10.98.0.0/16", "--pool %q is no IPv4 range of 64 addresses or more", text)
	}
	if why := cni.Unusable(cidr); why != "" {
		return cidr, refuse("give a free one, such as 10.98.0.0/16", "--pool %s %s", cidr, why)
	}
	for _, object := range snapshot.Calico("IPPool") {
		if other, err := netip.ParsePrefix(textOf(&object, "cidr")); err == nil && other.Overlaps(cidr) {
			return cidr, refuse("give a range that nothing has", "%s overlaps IPPool %s (%s)", cidr, object.GetName(), other)
		}
		if object.GetName() == poolName(cidr) {
			return cidr, refuse("delete it if nothing needs it", "there is an IPPool %s of another range", object.GetName())
		}
	}
	return cidr, nil
}

func poolName(cidr netip.Prefix) string {
	return "pods-" + strings.NewReplacer(".", "-", "/", "-").Replace(cidr.String())
}

// asking are the pods and namespaces that would not get what they ask for.
func asking(snapshot *cluster.Snapshot) []string {
	var found []string
	look := func(what string, annotations map[string]string, namespace bool) {
		for _, ask := range calico.Asks() {
			if _, ok := annotations[ask.Annotation]; ok && ask.Left != "" && (ask.Namespaces || !namespace) {
				found = append(found, what+" ("+ask.Annotation+")")
			}
		}
	}
	for i := range snapshot.Namespaces {
		look("namespace "+snapshot.Namespaces[i].Name, snapshot.Namespaces[i].Annotations, true)
	}
	for i := range snapshot.Pods {
		if pod := &snapshot.Pods[i]; check.Moves(pod) {
			look("pod "+pod.Namespace+"/"+pod.Name, pod.Annotations, false)
		}
	}
	return found
}

// poolsOf makes the new pool as the old one is, but for its range. Where nodes have addresses of the old one for their
// tunnels it stays for those: Felix ends the routes of a tunnel for a moment when that gets another address (it deletes the
// old one first, and with the last address of an interface the kernel deletes its routes).
func poolsOf(old *unstructured.Unstructured, cidr netip.Prefix) pool.Pools {
	uses, restricted, _ := unstructured.NestedStringSlice(old.Object, "spec", "allowedUses")
	picks := textOf(old, "nodeSelector")
	if picks == "" {
		picks = "all()"
	}
	spec, _, _ := unstructured.NestedMap(old.Object, "spec")
	spec["cidr"], spec["nodeSelector"] = cidr.String(), "!all()"
	created := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": old.GetAPIVersion(), "kind": "IPPool", "spec": spec,
		"metadata": map[string]any{"name": poolName(cidr)},
	}}
	patch := func(field string, value any) []byte {
		return joint.Canonical(map[string]any{"spec": map[string]any{field: value}})
	}
	pools := pool.Pools{
		Old: step.RefOf(old), New: created,
		Open: patch("nodeSelector", picks), Shut: patch("nodeSelector", "!all()"),
		Close: patch("disabled", true), Reopen: patch("disabled", old.Object["spec"].(map[string]any)["disabled"]),
		Ask:   map[string]string{calico.AnnotationIPv4Pools: fmt.Sprintf("[%q]", created.GetName())},
		Stays: textOf(old, "vxlanMode") != "" && textOf(old, "vxlanMode") != "Never" && (!restricted || slices.Contains(uses, "Tunnel")),
	}
	if pools.Stays {
		pools.Close, pools.Reopen = patch("allowedUses", []string{"Tunnel"}), patch("allowedUses", nil)
		if restricted {
			pools.Reopen = patch("allowedUses", uses)
		}
	}
	return pools
}
