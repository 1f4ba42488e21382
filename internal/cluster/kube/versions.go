package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Versions notices that Kubernetes is upgraded under a run: that drains and restarts nodes in an order of its own, and
// what it breaks would count as loss of the change. It is for one goroutine.
type Versions struct {
	Client *Client
	Clock  engine.Clock

	next   time.Time
	server string
	nodes  map[string]string // the kubelet's version by node
}

// Changed says which version is another one than when it was seen first; "" when none is. It looks every ten seconds, and
// of more than 500 nodes more seldom. Nodes that come or go are no upgrade, and what cannot be read now is read the next time.
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
	return fmt.Sprintf("Kubernetes is being upgraded: %s was %s when this run began, and is %s now; finish that first, as it moves pods and restarts nodes "+
		"by itself", who, was, now)
}
