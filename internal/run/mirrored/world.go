package mirrored

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/prover"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/network/drivers"
)

// World has the connections of a plan of the strategy mirror: both clusters and the zones.
type World struct {
	Plan             *plan.Plan
	Version          string // of this program
	Original, Mirror *replica.Cluster
	Zones            []*dns.Zone
	Config           *dns.Config
}

// sick are the original's nodes that are not Ready.
func (p *World) sick(ctx context.Context) ([]string, error) {
	nodes, err := p.Original.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var sick []string
	for i := range nodes.Items {
		if node := &nodes.Items[i]; !cluster.NodeReady(node) {
			sick = append(sick, node.Name)
		}
	}
	return sick, nil
}

// whole says why the original is not yet on a network, alone and without problems; "" if it is, or if no network is
// named.
func (p *World) whole(ctx context.Context, network string) (string, error) {
	if network == "" {
		return "", nil
	}
	p.Original.Mapper.Reset() // the new network brings its own CRDs
	snapshot, err := kube.Snapshot(ctx, p.Original.Client, p.Version, time.Now())
	if err != nil {
		return "", err
	}
	found := drivers.All().Detect(snapshot)
	switch {
	case len(found) == 0:
		return "the original has no network", nil
	case len(found) > 1:
		return fmt.Sprintf("the original has %s and %s", found[0].CNI, found[1].CNI), nil
	case found[0].CNI != network:
		return "the original is on " + found[0].CNI, nil
	case len(found[0].Problems) > 0:
		return network + " has problems: " + strings.Join(found[0].Problems, "; "), nil
	}
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; !cluster.NodeReady(node) {
			return "node " + node.Name + " is not Ready", nil
		}
	}
	return "", nil
}

// prove makes TLS handshakes with the mirror's addresses for every name, and demands certificates that stay valid for a
// time.
func (p *World) prove(ctx context.Context, left time.Duration) ([]prover.Proof, error) {
	var domains []string
	if named := p.Plan.Mirror.Certificates; named != nil {
		domains = named.Domains
	}
	rules, err := certs.ParseRules(domains)
	if err != nil {
		return nil, err
	}
	prober, err := p.Config.Prober()
	if err != nil {
		return nil, err
	}
	original, err := p.named(ctx, p.Original)
	if err != nil {
		return nil, err
	}
	other, err := p.named(ctx, p.Mirror)
	if err != nil {
		return nil, err
	}
	secrets, err := (&prover.Cluster{Client: p.Mirror.Client}).Read(ctx, nil)
	if err != nil {
		return nil, err
	}
	proving := &prover.Prover{Trust: certs.Trust{Roots: prober.Roots, Now: time.Now(), Left: left}, Ports: prober.Ports,
		Resolve: prober.Addresses, Secrets: secrets.SecretsFor}
	return proving.Names(ctx, original, other, rules)
}

// named takes a snapshot of a cluster, with the objects that DNS names come from.
func (p *World) named(ctx context.Context, of *replica.Cluster) (*cluster.Snapshot, error) {
	snapshot, err := kube.Snapshot(ctx, of.Client, p.Version, time.Now())
	if err != nil {
		return nil, err
	}
	return snapshot, kube.AddNames(ctx, of.Client, snapshot)
}
