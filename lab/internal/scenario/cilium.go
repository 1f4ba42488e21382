package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/image"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// SocketLB are the values with which Cilium's chart is rendered for a change: Cilium translates Services when pods
// connect. Without it, v1.20.2 lets single packets past policy, with any network or none before it:
// docs/explanation/cilium-next-to-flannel.md.
var SocketLB = []string{"--set", "socketLB.enabled=true"}

// ImagesOf builds the images of Calico or Cilium, for nodes of a network that do not have them. It returns their files.
func ImagesOf(ctx context.Context, programs *build.Cache, name string) ([]string, error) {
	images, err := image.All(ctx, programs, name, "")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, i := range images {
		if strings.HasPrefix(i.Name, "quay.io/"+name+"/") {
			files = append(files, i.Tar)
		}
	}
	return files, nil
}

// Load gives the lab's nodes images.
func (r *Rig) Load(ctx context.Context, files []string) error {
	for _, file := range files {
		if _, err := r.InLab(ctx, "image", "load", file); err != nil {
			return err
		}
	}
	return nil
}

// onCilium succeeds on a node with Cilium's tunnel, whose pods are on no other network, and that has no link of one.
const onCilium = `test -e /sys/class/net/cilium_vxlan && test -e /etc/cni/net.d/05-cilium.conflist &&
	test -z "$(ls /sys/class/net/cni0/brif 2>/dev/null)" &&
	! ls /sys/class/net | grep -qE '^cali|^vxlan\.calico|^flannel\.'`

// ByInternalIP has Calico take the nodes' addresses from the API: by its default it may take that of Cilium's link.
func (r *Rig) ByInternalIP(ctx context.Context) error {
	if _, err := r.Kubectl(ctx, nil, "-n", "kube-system", "set", "env", "daemonset/calico-node",
		"IP_AUTODETECTION_METHOD=kubernetes-internal-ip"); err != nil {
		return err
	}
	return r.rolledOut(ctx, "daemonset/calico-node")
}

// rolledOut waits until all pods of a workload of kube-system have its newest form.
func (r *Rig) rolledOut(ctx context.Context, workload string) error {
	return r.show(ctx, "-n", "kube-system", "rollout", "status", workload, waitLimit)
}

// takeOver gives the pods of nodes with a label to Cilium.
const (
	takeOverLabel = "io.cilium.migration/cilium-default"
	takeOver      = `apiVersion: cilium.io/v2
kind: CiliumNodeConfig
metadata: {namespace: kube-system, name: cilium-default}
spec:
  nodeSelector: {matchLabels: {` + takeOverLabel + `: "true"}}
  defaults:
    write-cni-conf-when-ready: /host/etc/cni/net.d/05-cilium.conflist
    custom-cni-conf: "false"
    cni-chaining-mode: "none"
    cni-exclusive: "true"
`
)

// ciliumGuide follows Cilium's guide for live migration (Documentation/installation/k8s-install-migration.rst of
// v1.20.2): Cilium next to flannel with its policy off, then each node cordoned, drained, given to Cilium and
// restarted. The guide was not tested with another program that enforces policy, and advises to delete all
// NetworkPolicies first. They come back when Cilium enforces them.
func (r *Rig) ciliumGuide(ctx context.Context) error {
	r.Say("Cilium next to flannel without policy; then cordon, drain and restart each node")
	if err := r.show(ctx, "delete", "networkpolicies", "--all", "--all-namespaces"); err != nil {
		return err
	}
	// The client that policy denies is not ready while it is answered, and its budget would stop the drain.
	if err := r.show(ctx, "-n", workload.Namespace, "delete", "poddisruptionbudget/intruder"); err != nil {
		return err
	}
	// the range of the pods is the manifest's own
	values := []string{"tunnelPort=8473", "cni.uninstall=false", "bpf.hostLegacyRouting=true"}
	if err := r.installCilium(ctx, append(values, "cni.customConf=true", "policyEnforcementMode=never",
		"operator.unmanagedPodWatcher.restart=false")); err != nil {
		return err
	}
	for _, wait := range []string{"create", "condition=Established"} {
		if err := r.show(ctx, "wait", "--for="+wait, "crd/ciliumnodeconfigs.cilium.io", waitLimit); err != nil {
			return err
		}
	}
	if _, err := r.Kubectl(ctx, strings.NewReader(takeOver), "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, node := range r.NodeNames() {
		if err := r.giveToCilium(ctx, node); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}

	if err := r.installCilium(ctx, append(values, "cni.customConf=false", "policyEnforcementMode=default",
		"operator.unmanagedPodWatcher.restart=true")); err != nil {
		return err
	}
	if err := r.show(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/cilium"); err != nil {
		return err
	}
	if err := r.rolledOut(ctx, "daemonset/cilium"); err != nil {
		return err
	}
	if err := r.show(ctx, "-n", "kube-system", "delete", "ciliumnodeconfig/cilium-default"); err != nil {
		return err
	}
	if err := r.Deploy(ctx); err != nil { // which restores the policies and the budget
		return err
	}
	if err := r.manifest(ctx, "flannel", "delete", "--wait"); err != nil {
		return err
	}
	return r.cleanNodes(ctx)
}

// installCilium applies what Cilium's chart makes of some values, and waits for its agents.
func (r *Rig) installCilium(ctx context.Context, values []string) error {
	var flags []string
	for _, value := range values {
		flags = append(flags, "--set", value)
	}
	text, err := r.Manifest(ctx, "cilium", flags...)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "$ helm upgrade --install cilium %s\n", strings.Join(flags, " "))
	if _, err := r.Kubectl(ctx, strings.NewReader(text), "apply", "--server-side", "--force-conflicts", "-f",
		"-"); err != nil {
		return err
	}
	if err := r.rolledOut(ctx, "deployment/cilium-operator"); err != nil {
		return err
	}
	return r.rolledOut(ctx, "daemonset/cilium")
}

// giveToCilium moves a node to Cilium as the guide does.
func (r *Rig) giveToCilium(ctx context.Context, node string) error {
	agent := []string{"--field-selector", "spec.nodeName=" + node, "-l", "k8s-app=cilium"}
	for _, args := range [][]string{
		{"cordon", node},
		// the guide leaves out the second flag, without which kubectl refuses pods with an emptyDir
		{"drain", node, "--ignore-daemonsets", "--delete-emptydir-data", waitLimit},
		{"label", "node", node, "--overwrite", takeOverLabel + "=true"},
		append([]string{"-n", "kube-system", "delete", "pod"}, agent...),
		{"-n", "kube-system", "rollout", "status", "daemonset/cilium", waitLimit},
	} {
		if err := r.show(ctx, args...); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.Out, "restart %s\n", node)
	off := time.Now()
	for _, power := range []string{"kill", "start"} {
		if _, err := r.InLab(ctx, "node", power, node); err != nil {
			return err
		}
	}
	// The API shows pods as they were before the restart until the kubelet has said otherwise.
	list := slices.Concat([]string{"-n", "kube-system", "get", "pod", "-o", `jsonpath={range .items[*].status.` +
		`containerStatuses[*]}{.ready} {.state.running.startedAt}{"\n"}{end}`}, agent)
	for {
		out, err := r.Kubectl(ctx, nil, list...)
		if err == nil && startedSince(out, off) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Cilium is not ready after the restart: %w; its containers are %q (%v)", ctx.Err(), out,
				err)
		case <-time.After(time.Second):
		}
	}
	for _, args := range [][]string{{"wait", "--for=condition=Ready", "node/" + node, waitLimit}, {"uncordon", node}} {
		if err := r.show(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// startedSince reports whether all containers are ready, and have started since a time. Each line has whether one is
// ready, and when it started.
func startedSince(lines string, since time.Time) bool {
	n := 0
	for line := range strings.Lines(lines) {
		ready, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		started, err := time.Parse(time.RFC3339, at)
		if ready != "true" || err != nil || started.Before(since.Truncate(time.Second)) {
			return false
		}
		n++
	}
	return n > 0
}
