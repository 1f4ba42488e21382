package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Versions detects an upgrade of Kubernetes during a run: an upgrade drains and restarts nodes in its own order, and
// the losses that it causes would be attributed to the change. It is not safe for concurrent use.
type Versions struct {
	Client *Client
	Clock  engine.Clock

	next   time.Time
	server string
	nodes  map[string]string // the kubelet's version by node
}

// Changed reports a version that has changed since it was first seen; "" if none has. It checks every ten seconds, and
// less often with more than 500 nodes. Nodes that join or leave are not an upgrade. If reading fails, it tries again
// next time.
func (v *Versions) Changed(ctx context.Context) string {
	if v.Clock.Now().Before(v.next) {
		return ""
	}
	info, err := v.Client.serverVersion(ctx)
	if err != nil {
		return ""
	}
	nodes, err := v.Client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return ""
	}
	v.next = v.Clock.Now().Add(max(10*time.Second, time.Duration(len(nodes.Items))*20*time.Millisecond))
	if v.nodes == nil {
		v.server, v.nodes = info.GitVersion, map[string]string{}
	}
	if info.GitVersion != v.server {
		return upgraded("the API server", v.server, info.GitVersion)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		now := node.Status.NodeInfo.KubeletVersion
		if was, known := v.nodes[node.Name]; !known {
			v.nodes[node.Name] = now
		} else if was != now {
			return upgraded("the kubelet of "+node.Name, was, now)
		}
	}
	return ""
}

func upgraded(who, was, now string) string {
	return fmt.Sprintf("Kubernetes is being upgraded: %s was %s when this run began, and is %s now; finish the "+
		"upgrade first, as it moves pods and restarts nodes", who, was, now)
}
