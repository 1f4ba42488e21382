package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

// propose plans another IPPool for the pods of the network in place, or returns a *kind.Refusal.
func propose(r *kind.Request) (*kind.Draft, error) {
	snapshot, change := r.Snapshot, r.Change
	source, err := kind.ReadyOn("calico", snapshot, change, r.Drivers, "--pool is for clusters on Calico")
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
	if err := NotOperators(snapshot, source, old); err != nil {
		return nil, err
	}
	if asks := asking(snapshot); len(asks) > 0 {
		return nil, kind.Refuse("remove the annotations; after the change, pods can request the new pool or its "+
			"addresses", "pods request addresses of a certain pool: %s", kind.Some(asks))
	}
	waves, err := kind.CountedWaves(snapshot, change)
	if err != nil {
		return nil, err
	}
	// What counts for pods is one pool, whatever others there are for something else.
	source.PodCIDRs = []string{Text(old, "cidr")}
	outlook := joint.Survey(snapshot, source.PodCIDRs, waves, nil)
	if err := kind.Movable(outlook, source); err != nil {
		return nil, err
	}
	target := *source
	target.PodCIDRs = []string{cidr.String()}
	if masquerade := source.Capabilities.Masquerade; masquerade != nil &&
		slices.Contains(masquerade.From, source.PodCIDRs[0]) {
		target.Capabilities.Masquerade = &cni.Masquerade{From: target.PodCIDRs, Except: target.PodCIDRs}
	}
	pools := poolsOf(old, cidr)
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: target}, Change: change,
		Waves: waves, Outlook: outlook}
	p := kind.Begin(snapshot, change, r.Options, Name,
		"one network serves both pools at the same time, while the pods are recreated")
	p.Source, p.Target, p.Waves = *source, target, kind.WavesOf(waves)
	p.Steps, p.Workloads, p.Findings = Steps(in, pools), kind.WorkloadsOf(outlook.Workloads), r.Findings
	p.Pools = &kind.Pools{From: old.GetName(), To: pools.New.GetName(), Stays: pools.Stays}
	return &kind.Draft{Plan: p, Stem: "pool", Pods: outlook.PerNode}, nil
}

// Text is a field of a pool.
func Text(pool *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(pool.Object, "spec", field)
	return value
}

// OfPods is the one that pods have their addresses of.
func OfPods(snapshot *cluster.Snapshot) (*unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, object := range snapshot.Calico("IPPool") {
		disabled, _, _ := unstructured.NestedBool(object.Object, "spec", "disabled")
		uses, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "allowedUses")
		if prefix, err := netip.ParsePrefix(Text(&object, "cidr")); err == nil && prefix.Addr().Is4() && !disabled &&
			(len(uses) == 0 || slices.Contains(uses, "Workload")) {
			found = append(found, object)
		}
	}
	if len(found) != 1 {
		return nil, kind.Refuse("kubectl get "+snapshot.CalicoResource("ippools")+"; disable the pools that pods "+
			"should "+
			"not use", "pods get addresses from %d IPv4 IPPools, and a plan can replace only one", len(found))
	}
	return &found[0], nil
}

// onlyPool is OfPods, where pods can be moved from it.
func onlyPool(snapshot *cluster.Snapshot) (*unstructured.Unstructured, error) {
	old, err := OfPods(snapshot)
	switch {
	case err != nil:
		return nil, err
	case Text(old, "ipipMode") != "" && Text(old, "ipipMode") != "Never":
		return nil, kind.Refuse(
			"Calico's documentation has a procedure by hand: migrate from one IP pool to another (its objects are "+
				snapshot.CalicoResource("ippools")+" for kubectl)",
			"IPPool %s encapsulates by IPIP, and a change of its pool was never run", old.GetName())
	case Text(old, "namespaceSelector") != "":
		return nil, kind.Refuse("remove its namespaceSelector first",
			"IPPool %s serves only some namespaces", old.GetName())
	}
	return old, nil
}

// freeRange reads the new range, and refuses one that is in use.
func freeRange(snapshot *cluster.Snapshot, text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() > 26 || cidr != cidr.Masked() {
		return cidr, kind.Refuse("give a free one, such as 10.98.0.0/16",
			"--pool %q is no IPv4 range of 64 addresses or more", text)
	}
	if why := cni.Unusable(cidr); why != "" {
		return cidr, kind.Refuse("give a free one, such as 10.98.0.0/16", "--pool %s %s", cidr, why)
	}
	for _, object := range snapshot.Calico("IPPool") {
		if other, err := netip.ParsePrefix(Text(&object, "cidr")); err == nil && other.Overlaps(cidr) {
			return cidr, kind.Refuse("use a free range", "%s overlaps IPPool %s (%s)",
				cidr, object.GetName(), other)
		}
		if object.GetName() == poolName(cidr) {
			return cidr, kind.Refuse("delete it if it is not needed", "an IPPool %s with another range exists",
				object.GetName())
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
// tunnels it stays for those: Felix ends the routes of a tunnel for a moment when that gets another address (it deletes
// the old one first, and with the last address of an interface the kernel deletes its routes).
func poolsOf(old *unstructured.Unstructured, cidr netip.Prefix) Pools {
	uses, restricted, _ := unstructured.NestedStringSlice(old.Object, "spec", "allowedUses")
	picks := Text(old, "nodeSelector")
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
	pools := Pools{
		Old: step.RefOf(old), New: created,
		Open: patch("nodeSelector", picks), Deselect: patch("nodeSelector", "!all()"),
		Close: patch("disabled", true), Reopen: patch("disabled", old.Object["spec"].(map[string]any)["disabled"]),
		Ask: map[string]string{calico.AnnotationIPv4Pools: fmt.Sprintf("[%q]", created.GetName())},
		Stays: Text(old, "vxlanMode") != "" && Text(old, "vxlanMode") != "Never" &&
			(!restricted || slices.Contains(uses, "Tunnel")),
	}
	if pools.Stays {
		pools.Close, pools.Reopen = patch("allowedUses", []string{"Tunnel"}), patch("allowedUses", nil)
		if restricted {
			pools.Reopen = patch("allowedUses", uses)
		}
	}
	return pools
}

// NotOperators refuses to change a pool that Calico's operator would write back.
func NotOperators(snapshot *cluster.Snapshot, source *cni.Installation, pool *unstructured.Unstructured) error {
	owner := metav1.GetControllerOf(snapshot.DaemonSet(source.Agent.Namespace, source.Agent.Name))
	if owner == nil {
		owner = metav1.GetControllerOf(pool)
	}
	if owner != nil || pool.GetLabels()["app.kubernetes.io/managed-by"] == "tigera-operator" {
		return kind.Refuse("change it in its Installation: theseus does not change what an operator writes back",
			"IPPool %s belongs to Calico's operator", pool.GetName())
	}
	return nil
}
