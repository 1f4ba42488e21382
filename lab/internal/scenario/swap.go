package scenario

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Swap is one way to change the network of a cluster.
type Swap struct {
	Key  string // its name in --only
	Name string
	// network that the cluster starts on; empty means flannel, with kube-router for policy
	Network string
	To      string                            // network that it ends on; empty means calico
	Nodes   int                               // of the cluster; 0 means the comparison's number
	Before  func(*Rig, context.Context) error // runs before the cluster is used
	Do      func(*Rig, context.Context) error
	Done    string // shell command that succeeds on a node that is only on the new network; empty means onCalico
}

// onCalico succeeds on a node with Calico's tunnel, and without pods on the bridge of another network.
const onCalico = `test -e /sys/class/net/vxlan.calico && test -z "$(ls /sys/class/net/cni0/brif /sys/class/net/weave/brif 2>/dev/null)"`

// Swaps are the compared ways from flannel to Calico. docs/results.md says where the first two come from.
func Swaps() []Swap {
	return []Swap{
		{Key: "a", Name: "delete, install, restart all pods", Do: (*Rig).DeleteAndInstall},
		{Key: "b", Name: "Calico's flannel migration controller", Do: (*Rig).migrationController},
		{Key: "c", Name: "Theseus", Do: (*Rig).Migrate},
		{Key: "d", Name: "Theseus, by adoption", Do: (*Rig).adopt},
	}
}

// adopt moves running pods.
func (r *Rig) adopt(ctx context.Context) error {
	r.Strategy = "adopt"
	return r.Migrate(ctx)
}

// DeleteAndInstall moves flannel, with kube-router, to Calico in the usual way, in its careful form: nothing is removed
// on the nodes until the last pod has left the old network, and the new network gets addresses of its own.
func (r *Rig) DeleteAndInstall(ctx context.Context) error {
	r.Say("delete flannel and kube-router, install Calico, restart all pods, clean the nodes")
	if err := r.manifest(ctx, "flannel", "delete", "--wait"); err != nil {
		return err
	}
	if err := r.manifest(ctx, "calico", "apply"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-n", "kube-system", "rollout", "status", "daemonset/calico-node"},
		{"delete", "pods", "--all-namespaces", "--field-selector", "spec.hostNetwork=false"},
		{"wait", "--for=condition=Ready", "pods", "--all", "--all-namespaces", waitLimit},
	} {
		if err := r.show(ctx, args...); err != nil {
			return err
		}
	}
	return r.cleanNodes(ctx)
}

// migrationController follows Calico's documentation: its manifest, then the Job of its controller, which is
// the real one and does the rest. kube-router enforces policy meanwhile, and is removed at the end.
func (r *Rig) migrationController(ctx context.Context) error {
	r.Say("install Calico on no node yet, and let its flannel migration controller take over node by node")
	for _, part := range []string{"flannel-migration", "flannel-migration-job"} {
		if err := r.manifest(ctx, part, "apply"); err != nil {
			return err
		}
	}
	if err := r.awaitMigration(ctx); err != nil {
		return err
	}
	if err := r.show(ctx, "-n", "kube-system", "rollout", "status", "daemonset/calico-node"); err != nil {
		return err
	}
	for _, part := range []string{"flannel-migration-job", "kube-router-firewall"} {
		if err := r.manifest(ctx, part, "delete", "--wait"); err != nil {
			return err
		}
	}
	return r.cleanNodes(ctx)
}

// awaitMigration waits for the controller's Job, shows the progress of the nodes, and keeps the controller's log in a
// file.
func (r *Rig) awaitMigration(ctx context.Context) error {
	const job = "job/flannel-migration"
	start, shown := time.Now(), ""
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controller's Job is not complete: %w", ctx.Err())
		case <-time.After(5 * time.Second):
		}
		// Either may fail for a moment, while the controller moves to another node.
		if said, err := r.Kubectl(ctx, nil, "-n", "kube-system", "logs", job); err == nil && said != "" {
			if err := os.WriteFile(filepath.Join(r.Dir, "controller.log"), []byte(said), 0o644); err != nil {
				return err
			}
		}
		state, err := r.Kubectl(ctx, nil, "-n", "kube-system", "get", job, "-o",
			"jsonpath={.status.conditions[?(@.status=='True')].type}")
		if err != nil {
			continue
		}
		nodes, err := r.Kubectl(ctx, nil, "get", "nodes", "--no-headers", "-o", "custom-columns="+
			`:.metadata.name,:.metadata.labels.projectcalico\.org/node-network-during-migration,:.spec.unschedulable`)
		if err == nil && nodes != shown {
			shown = nodes
			fmt.Fprint(r.Out, nodes)
		}
		switch {
		case strings.Contains(state, "Failed"):
			return fmt.Errorf("the controller gave up; its last log is in %s", filepath.Join(r.Dir, "controller.log"))
		case strings.Contains(state, "Complete"):
			fmt.Fprintf(r.Out, "the Job was complete after %.0f s\n", time.Since(start).Seconds())
			return nil
		}
	}
}

// waitLimit bounds kubectl's own waits; the limit of the whole swap is usually shorter.
const waitLimit = "--timeout=15m"

// show runs kubectl and shows its output.
func (r *Rig) show(ctx context.Context, args ...string) error {
	fmt.Fprintf(r.Out, "$ kubectl %s\n", strings.Join(args, " "))
	_, err := r.run(ctx, nil, r.Out, r.Lab, append([]string{"kubectl", "--name", r.Name}, args...)...)
	return err
}

// manifest applies or deletes the output of `theseus-lab manifest`.
func (r *Rig) manifest(ctx context.Context, name string, verb ...string) error {
	text, err := r.Manifest(ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "$ kubectl %s -f %s.yaml\n", strings.Join(verb, " "), name)
	_, err = r.Kubectl(ctx, strings.NewReader(text), append(verb, "-f", "-")...)
	return err
}

// clean removes the residue of flannel and kube-router from a node.
//
//go:embed clean.sh
var clean string

func (r *Rig) cleanNodes(ctx context.Context) error {
	for _, node := range r.NodeNames() {
		fmt.Fprintf(r.Out, "clean %s\n", node)
		if out, err := r.OnNode(ctx, node, "sh", "-c", clean); err != nil {
			return fmt.Errorf("clean %s: %w %s", node, err, out)
		}
	}
	return nil
}
