// Command kindnet is the lab's stand-in for kindnetd, the daemon of kind's network, which cannot be had as a Go module.
// It leaves on a node what kindnetd leaves: the CNI configuration, the routes to the other nodes' pods, and the rules
// that masquerade. It was written after images/kindnetd of kind, as of v20240513, the last that enforces no
// NetworkPolicy.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	confFile = "/etc/cni/net.d/10-kindnet.conflist"
	account  = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

// Routes are looked at every routesEvery, rules every rulesEvery.
const (
	routesEvery = 10 * time.Second
	rulesEvery  = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	host, subnet := os.Getenv("HOST_IP"), strings.TrimSpace(os.Getenv("POD_SUBNET"))
	if _, _, err := net.ParseCIDR(subnet); err != nil || net.ParseIP(host) == nil {
		return fmt.Errorf("HOST_IP is %q and POD_SUBNET is %q, and there must be an address and a range", host, subnet)
	}
	client, err := apiClient()
	if err != nil {
		return err
	}
	var written []byte
	var ruled time.Time
	for {
		if time.Since(ruled) >= rulesEvery {
			if err := masquerade(ctx, subnet); err != nil {
				return err
			}
			ruled = time.Now()
		}
		if written, err = reconcile(ctx, client, host, written); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err) // and once more
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait(err)):
		}
	}
}

func wait(err error) time.Duration {
	if err != nil {
		return time.Second
	}
	return routesEvery
}

// reconcile writes this node's configuration if it differs from the one that was written last, and adds the routes to
// the pods of other nodes.
func reconcile(ctx context.Context, client *http.Client, host string, written []byte) ([]byte, error) {
	all, err := nodes(ctx, client)
	if err != nil {
		return written, err
	}
	for _, n := range all {
		switch own := n.Spec.PodCIDR; {
		case n.has(host):
			conf := conflist(own, mtu())
			if bytes.Equal(conf, written) {
				continue
			}
			if err := replace(confFile, conf); err != nil {
				return written, err
			}
			written = conf
		case own != "":
			if err := route(own, n.address()); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// node is the part of a Node that matters here.
type node struct {
	Spec struct {
		PodCIDR string `json:"podCIDR"`
	} `json:"spec"`
	Status struct {
		Addresses []struct{ Type, Address string } `json:"addresses"`
	} `json:"status"`
}

func (n node) address() string {
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" {
			return a.Address
		}
	}
	return ""
}

func (n node) has(host string) bool { return n.address() == host }

func apiClient() (*http.Client, error) {
	text, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}, nil
}

func nodes(ctx context.Context, client *http.Client) ([]node, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return nil, err
	}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/api/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list the nodes: %s", response.Status)
	}
	var list struct{ Items []node }
	return list.Items, json.NewDecoder(response.Body).Decode(&list)
}

// mtu is that of eth0; 0 leaves it to the kernel.
func mtu() int {
	link, err := net.InterfaceByName("eth0")
	if err != nil {
		return 0
	}
	return link.MTU
}

// conflist is kindnetd's own, for one family.
func conflist(subnet string, mtu int) []byte {
	size := ""
	if mtu > 0 {
		size = fmt.Sprintf(",\n\t\t\"mtu\": %d", mtu)
	}
	return fmt.Appendf(nil, `
{
	"cniVersion": "0.3.1",
	"name": "kindnet",
	"plugins": [
	{
		"type": "ptp",
		"ipMasq": false,
		"ipam": {
			"type": "host-local",
			"dataDir": "/run/cni-ipam-state",
			"routes": [ { "dst": "0.0.0.0/0" } ],
			"ranges": [ [ { "subnet": %q } ] ]
		}%s
	},
	{
		"type": "portmap",
		"capabilities": {
			"portMappings": true
		}
	}
	]
}
`, subnet, size)
}

// replace writes a file under a name that no runtime reads, and renames it.
func replace(file string, text []byte) error {
	if err := os.WriteFile(file+".temp", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".temp", file)
}

// route is kindnetd's syncRoute: what leads to the range by another gateway is deleted.
func route(subnet, gateway string) error {
	_, to, err := net.ParseCIDR(subnet)
	by := net.ParseIP(gateway)
	if err != nil || by == nil {
		return fmt.Errorf("a node has the range %q and the address %q", subnet, gateway)
	}
	wanted := netlink.Route{Dst: to, Gw: by}
	there, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &wanted, netlink.RT_FILTER_DST)
	if err != nil {
		return fmt.Errorf("list the routes to %s: %w", subnet, err)
	}
	found := false
	for _, r := range there {
		if r.Gw.Equal(by) {
			found = true
		} else if err := netlink.RouteDel(&r); err != nil {
			return fmt.Errorf("delete a route to %s: %w", subnet, err)
		}
	}
	if found {
		return nil
	}
	return netlink.RouteAdd(&wanted)
}

const chain = "KIND-MASQ-AGENT"

// masquerade is kindnetd's SyncRules: what leaves for any address outside of the pods' range has the node's address,
// whoever sent it.
func masquerade(ctx context.Context, subnet string) error {
	if err := iptables(ctx, "-S", chain); err != nil {
		if err := iptables(ctx, "-N", chain); err != nil {
			return err
		}
	}
	comment := func(text string) []string { return []string{"-m", "comment", "--comment", "kind-masq-agent: " + text} }
	for _, rule := range [][]string{
		append([]string{chain, "-d", subnet, "-j", "RETURN"}, comment("local traffic is not subject to MASQUERADE")...),
		append([]string{chain, "-j", "MASQUERADE"},
			comment("outbound traffic is subject to MASQUERADE (must be last in chain)")...),
		append([]string{"POSTROUTING", "-m", "addrtype", "!", "--dst-type", "LOCAL", "-j", chain},
			comment("ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom "+
				chain+" chain")...),
	} {
		if iptables(ctx, append([]string{"-C"}, rule...)...) == nil {
			continue
		}
		if err := iptables(ctx, append([]string{"-A"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

func iptables(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "iptables", append([]string{"-w", "-t", "nat"}, args...)...).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("iptables %s: %w", strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}
