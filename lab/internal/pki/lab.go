package pki

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Lab is every secret of one lab.
type Lab struct {
	CA, FrontProxyCA       []byte // certificates, PEM
	CAKey                  []byte // the controller manager signs with it
	APIServer              Pair   // serving
	KubeletClient          Pair   // API server -> kubelet
	FrontProxyClient       Pair   // API server -> aggregated API servers
	ServiceAccount         Pair
	Admin                  Pair
	ControllerManager      Pair
	Scheduler              Pair
	Proxy                  Pair
	NodeClient, NodeServer []Pair // element n-1 is node n's
}

// NewLab makes every secret of the lab.
func NewLab(l spec.Lab, now time.Time) (*Lab, error) {
	ca, err := NewAuthority("theseus-lab-"+l.Name, now)
	if err != nil {
		return nil, err
	}
	front, err := NewAuthority("theseus-lab-"+l.Name+"-front-proxy", now)
	if err != nil {
		return nil, err
	}
	out := &Lab{CA: ca.Cert, CAKey: ca.Key, FrontProxyCA: front.Cert}
	if out.ServiceAccount, err = SigningKey(); err != nil {
		return nil, err
	}
	if out.FrontProxyClient, err = front.Client(now, "front-proxy-client"); err != nil {
		return nil, err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	ips := []netip.Addr{l.ControlPlaneIP(), l.KubernetesServiceIP(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if out.APIServer, err = ca.Server(now, "kube-apiserver", names, ips); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		into        *Pair
		user, group string
	}{
		{&out.KubeletClient, "kube-apiserver-kubelet-client", "system:masters"},
		{&out.Admin, "kubernetes-admin", "system:masters"},
		{&out.ControllerManager, "system:kube-controller-manager", "system:kube-controller-manager"},
		{&out.Scheduler, "system:kube-scheduler", "system:kube-scheduler"},
		{&out.Proxy, "system:kube-proxy", "system:node-proxier"},
	} {
		if *c.into, err = ca.Client(now, c.user, c.group); err != nil {
			return nil, err
		}
	}
	return out, out.AddNodes(ca, l, now)
}

// AddNodes makes the certificates of nodes that have none yet.
func (p *Lab) AddNodes(ca *Authority, l spec.Lab, now time.Time) error {
	for n := len(p.NodeClient) + 1; n <= l.Nodes; n++ {
		name := l.NodeName(n)
		client, err := ca.Client(now, "system:node:"+name, "system:nodes")
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		server, err := ca.Server(now, name, []string{name}, []netip.Addr{l.NodeIP(n)})
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		p.NodeClient, p.NodeServer = append(p.NodeClient, client), append(p.NodeServer, server)
	}
	return nil
}
