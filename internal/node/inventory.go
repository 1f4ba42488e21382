package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

func (n *Node) facts(ctx context.Context, args step.FactsArgs) (Answer, error) {
	facts := cluster.NodeFacts{Node: n.Name}
	var err error
	if facts.Links, err = links(); err != nil {
		return Answer{}, err
	}
	if facts.RPFilter, err = n.rpFilter(); err != nil {
		return Answer{}, err
	}
	if facts.Folders = n.folderFacts(); facts.Folders.Conf != "" {
		if facts.ConfFiles, err = n.confFiles(); err != nil {
			return Answer{}, err
		}
	}
	facts.Confs = n.confs(facts.ConfFiles)
	if facts.Kernel, err = n.kernel(); err != nil {
		return Answer{}, err
	}
	host := &cluster.Host{IPTables: map[string]int{}, Forward: map[string][]string{}}
	chains, legacy := map[string]int{}, map[string]int{}
	for _, b := range backends() {
		tables, err := n.save(ctx, b)
		if err != nil {
			return Answer{}, err
		}
		host.IPTables[b.kind] += countRules(tables)
		host.Filters = append(host.Filters, inputFilters(b, tables)...)
		for i := range tables {
			tables[i].families(chains)
			if b.kind == "legacy" {
				tables[i].families(legacy)
			}
		}
		if b.family != ip4 {
			continue
		}
		policy, accepting := forward(tables)
		if policy == "DROP" {
			host.Forward[b.kind] = accepting
		}
		if facts.ForwardPolicy != "DROP" && policy != "" {
			facts.ForwardPolicy = policy
		}
	}
	facts.BIRD = n.bird(ctx)
	if facts.Routes, err = routesByProtocol(); err != nil {
		return Answer{}, err
	}
	if err := n.host(ctx, host, facts.Kernel, args); err != nil {
		return Answer{}, err
	}
	if host.Traces, err = n.traces(ctx, chains); err != nil {
		return Answer{}, err
	}
	host.Traces.Legacy = legacy
	facts.Host = host
	return answer(false, fmt.Sprintf("%d interfaces, kernel %s", len(facts.Links), facts.Kernel), facts)
}

func (n *Node) inventory(ctx context.Context, residue step.Residue) (Answer, error) {
	found, err := n.find(ctx, residue)
	if err != nil {
		return Answer{}, err
	}
	return answer(false, fmt.Sprintf("%d found", found.Count()), step.Inventory{Node: n.Name, Found: found})
}

// find looks for a residue.
func (n *Node) find(ctx context.Context, residue step.Residue) (step.Residue, error) {
	w, err := n.world(ctx, residue)
	if err != nil {
		return step.Residue{}, err
	}
	return find(residue, w)
}

// world reads all that a residue could name. What cannot be read is an error: a node never counts as clean because it
// could not be read.
func (n *Node) world(ctx context.Context, residue step.Residue) (world, error) {
	var w world
	present, err := links()
	if err != nil {
		return w, err
	}
	for _, link := range present {
		if !foreignTunnel(link) {
			w.links = append(w.links, link.Name)
		}
	}
	for _, b := range backends() {
		tables, err := n.save(ctx, b)
		if err != nil {
			return w, err
		}
		w.tables = append(w.tables, tables...)
	}
	if w.routes, err = destinations(); err != nil {
		return w, err
	}
	if len(residue.Rules) > 0 {
		if w.rules, err = policyRules(); err != nil {
			return w, err
		}
	}
	if w.nftables, err = n.nftables(ctx, len(residue.NFTables) > 0); err != nil {
		return w, err
	}
	if w.ipsets, err = n.ipsets(ctx, len(residue.IPSets) > 0); err != nil {
		return w, err
	}
	told, err := n.folders()
	if err != nil {
		return w, err
	}
	if w.confFiles, err = names(filepath.Join(n.Root, told.conf)); err != nil {
		return w, err
	}
	for _, folder := range told.plugins {
		inside, err := names(filepath.Join(n.Root, folder))
		if err != nil {
			return w, err
		}
		w.binaries = append(w.binaries, inside...)
	}
	slices.Sort(w.binaries)
	w.binaries = slices.Compact(w.binaries)
	w.paths, err = n.existing(residue.Paths)
	return w, err
}

// foreignTunnel reports whether a link only has a name as of kube-router's tunnels, such as one of a VPN.
func foreignTunnel(link cluster.Link) bool {
	return strings.HasPrefix(link.Name, "tun-") && link.Type != "ipip" && link.Type != "ip6tnl"
}

func destinations() ([]netip.Prefix, error) {
	all, err := routes()
	if err != nil {
		return nil, err
	}
	var to []netip.Prefix
	for _, route := range all {
		if prefix, ok := destination(route); ok {
			to = append(to, prefix)
		}
	}
	return to, nil
}

// nftables lists the tables as "family name". It is asked only when a residue names some.
func (n *Node) nftables(ctx context.Context, wanted bool) ([]string, error) {
	if !wanted {
		return nil, nil
	}
	text, err := n.Commands.run(ctx, "", "nft", "-j", "list", "tables")
	if err != nil {
		return nil, err
	}
	return parseNFTables(text)
}

func parseNFTables(text string) ([]string, error) {
	var ruleset struct {
		NFTables []struct {
			Table *struct{ Family, Name string }
		}
	}
	if err := json.Unmarshal([]byte(text), &ruleset); err != nil {
		return nil, fmt.Errorf("read the nft tables: %w", err)
	}
	var all []string
	for _, item := range ruleset.NFTables {
		if item.Table != nil {
			all = append(all, item.Table.Family+" "+item.Table.Name)
		}
	}
	return all, nil
}

func (n *Node) ipsets(ctx context.Context, wanted bool) ([]string, error) {
	if !wanted {
		return nil, nil
	}
	text, err := n.Commands.run(ctx, "", "ipset", "list", "-name")
	if err != nil {
		return nil, err
	}
	return strings.Fields(text), nil
}
