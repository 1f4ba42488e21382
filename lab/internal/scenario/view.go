package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// View is the observed state of a cluster, with its clients' counts in a time before.
type View struct {
	Routes                  int // routes of BIRD to other nodes, on all nodes
	Pods, Running           int
	CalicoNodes, CalicoOK   int // pods of calico-node, and those that are Ready
	Nodes, NodesReady       int
	Sent, Failed, Intruding uint64 // requests of the clients; denied ones that were answered
}

// birdRoutes counts BIRD's routes in the kernel that lead to another node.
func (r *Rig) birdRoutes(ctx context.Context) (int, error) {
	total := 0
	for _, node := range r.NodeNames() {
		text, err := r.OnNode(ctx, node, "ip", "route", "show", "proto", "bird")
		if err != nil {
			return 0, err
		}
		total += strings.Count(text, " via ") // the node's own blocks are blackholes
	}
	return total, nil
}

// view reads the state of the cluster.
func (r *Rig) view(ctx context.Context) (View, error) {
	var v View
	var err error
	if v.Routes, err = r.birdRoutes(ctx); err != nil {
		return v, err
	}
	text, err := r.Kubectl(ctx, nil, "get", "nodes,pods", "-A", "-o", "json")
	if err != nil {
		return v, err
	}
	return v, v.read([]byte(text))
}

// allWell reports whether Kubernetes and Calico report no problem.
func (v *View) allWell() bool {
	return v.Pods > 0 && v.Running == v.Pods && v.CalicoOK == v.CalicoNodes && v.NodesReady == v.Nodes
}

// settled polls until no problem is reported, as a pod may be briefly NotReady, for at most as long as BGP may take. It
// returns the last view.
func (r *Rig) settled(ctx context.Context) (View, error) {
	for begun := time.Now(); ; {
		v, err := r.view(ctx)
		if err != nil || v.allWell() || time.Since(begun) > converge {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// read counts nodes and pods of a List.
func (v *View) read(list []byte) error {
	var objects struct {
		Items []struct {
			Kind     string
			Metadata struct{ Labels map[string]string }
			Status   struct {
				Phase      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(list, &objects); err != nil {
		return fmt.Errorf("nodes and pods: %w", err)
	}
	for _, o := range objects.Items {
		ready := 0
		for _, c := range o.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				ready = 1
			}
		}
		if o.Kind == "Node" {
			v.Nodes++
			v.NodesReady += ready
			continue
		}
		v.Pods++
		if o.Status.Phase == "Running" {
			v.Running++
		}
		if o.Metadata.Labels["k8s-app"] == "calico-node" {
			v.CalicoNodes++
			v.CalicoOK += ready
		}
	}
	return nil
}

// count sets the difference of two sums.
func (v *View) count(since, now tally.Summary) {
	failed, leaked := losses(now)
	failedBefore, leakedBefore := losses(since)
	v.Sent, v.Failed, v.Intruding = now.Sent()-since.Sent(), failed-failedBefore, leaked-leakedBefore
}

// compare prints two views side by side.
func (r *Rig) compare(before, after View) error {
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tbefore\t%.0f s after\t\n", look.Seconds())
	fmt.Fprintf(table, "routes to other nodes\t%d\t%d\t\n", before.Routes, after.Routes)
	fmt.Fprintf(table, "pods Running\t%d of %d\t%d of %d\t\n", before.Running, before.Pods, after.Running, after.Pods)
	fmt.Fprintf(table, "calico-node Ready\t%d of %d\t%d of %d\t\n",
		before.CalicoOK, before.CalicoNodes, after.CalicoOK, after.CalicoNodes)
	fmt.Fprintf(table, "nodes Ready\t%d of %d\t%d of %d\t\n",
		before.NodesReady, before.Nodes, after.NodesReady, after.Nodes)
	fmt.Fprintf(table, "requests failed\t-\t%d of %d\t\n", after.Failed, after.Sent)
	return table.Flush()
}
