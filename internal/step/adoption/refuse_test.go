package adoption

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

const (
	withMappings = `{"name":"n","plugins":[{"type":"bridge"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	without      = `{"name":"m","plugins":[{"type":"calico"}]}`
)

func sides() (from, to Side) {
	return Side{Attachment: step.Attachment{Bridge: "cni0"}, Network: "n", List: json.RawMessage(withMappings)},
		Side{Network: "m", List: json.RawMessage(withMappings)}
}

func plain() Pod {
	return Pod{Interface: "eth0", Links: []string{"eth0"},
		Addresses: []string{"198.19.0.2/24", "fe80::1/64"}, Kind: "veth", Through: "cni0",
		Host: "veth1", Master: "cni0"}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pod, *Side, *Side)
		want   string
	}{
		"none": {func(*Pod, *Side, *Side) {}, ""},
		"several interfaces": {func(p *Pod, _, _ *Side) { p.Links = []string{"eth0", "net1"} },
			"several interfaces: eth0, net1"},
		"macvlan":        {func(p *Pod, _, _ *Side) { p.Kind = "macvlan" }, "macvlan"},
		"dual stack":     {func(p *Pod, _, _ *Side) { p.Addresses = append(p.Addresses, "fd00::2/64") }, "IPv6"},
		"two addresses":  {func(p *Pod, _, _ *Side) { p.Addresses = append(p.Addresses, "198.19.0.3/24") }, "2 IPv4"},
		"no address":     {func(p *Pod, _, _ *Side) { p.Addresses = nil }, "0 IPv4"},
		"rules":          {func(p *Pod, _, _ *Side) { p.Rules = 2 }, "2 routing rules"},
		"foreign routes": {func(p *Pod, _, _ *Side) { p.Foreign = []string{"10.0.0.0/8 dev tun0"} }, "tun0"},
		"no bridge":      {func(p *Pod, _, _ *Side) { p.Master = "" }, "is not attached to the bridge"},
		"another way":    {func(p *Pod, _, _ *Side) { p.Through = "wg0" }, "through wg0"},
		"routed":         {func(p *Pod, from, _ *Side) { from.Bridge, p.Through, p.Master = "", "veth1", "" }, ""},
		"unknown plugin": {func(_ *Pod, from, _ *Side) {
			from.List = json.RawMessage(`{"plugins":[{"type":"bridge"},{"type":"sbr"}]}`)
		}, "does not know configured it: sbr"},
		"hostPort carried": {func(p *Pod, _, _ *Side) { p.Capabilities = map[string]any{"portMappings": []any{1}} },
			""},
		"hostPort not carried": {func(p *Pod, _, to *Side) {
			p.Capabilities = map[string]any{"portMappings": []any{1}}
			to.List = json.RawMessage(without)
		}, "no plugin for its portMappings"},
		"no hostPort": {func(p *Pod, _, to *Side) {
			p.Capabilities = map[string]any{"portMappings": []any{}, "dns": map[string]any{"servers": 1}}
			to.List = json.RawMessage(without)
		}, ""},
		"garbage": {func(_ *Pod, from, _ *Side) { from.List = json.RawMessage("{") }, "cannot be read"},
		"target garbage": {func(_ *Pod, _, to *Side) { to.List = json.RawMessage(`{}`) },
			"target's configuration cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := plain()
			from, to := sides()
			c.change(&pod, &from, &to)
			got := strings.Join(Refusals(pod, from, to), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("refused for %q, want %q", got, c.want)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	args := step.AdoptArgs{Pods: []string{"a/b"}, Skip: []string{"a/c"}}
	if !Wanted(args, "a", "b") || Wanted(args, "a", "c") || Wanted(args, "x", "b") ||
		!Wanted(step.AdoptArgs{}, "x", "b") ||
		Wanted(step.AdoptArgs{Skip: args.Skip}, "a", "c") {
		t.Error("wrong")
	}
}
