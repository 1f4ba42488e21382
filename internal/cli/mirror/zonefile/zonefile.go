package zonefile

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Sources are the sources of the inventory.
type Sources struct {
	Zones  string
	From   []string
	Mirror []string
}

// Register adds the flags to a command.
func (s *Sources) Register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.Zones, "zones", "", "file that says how to reach the zones")
	flags.StringSliceVar(&s.From, "from", nil,
		"the original: a snapshot, or files of Kubernetes YAML or JSON, instead of the cluster")
	flags.StringSliceVar(&s.Mirror, "mirror-from", nil, "the mirror, in the same forms")
}

// Read reads the file that says how to reach the zones.
func Read(file string) (*dns.Config, error) {
	if file == "" {
		return nil, exit.Fail(exit.Usage, "name it with --zones; docs/strategies/mirror-dns.md shows one",
			"no zones file")
	}
	return dns.ReadConfig(file)
}

// Inventory reads clusters and zones, and compares them.
func Inventory(ctx context.Context, m *clusters.Clusters, sources Sources) ([]names.Entry, []*zone.Zone, error) {
	config, err := Read(sources.Zones)
	if err != nil {
		return nil, nil, err
	}
	original, err := See(ctx, m, sources.From, m.Client)
	if err != nil {
		return nil, nil, err
	}
	other, err := See(ctx, m, sources.Mirror, m.MirrorClient)
	if err != nil {
		return nil, nil, err
	}
	opened, err := config.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	var zones []*zone.Zone
	for _, z := range opened {
		loaded, err := z.Load(ctx)
		if err != nil {
			return nil, nil, err
		}
		zones = append(zones, loaded)
	}
	return names.Inventory(original, other, zones, names.Options{Registry: config.Registry,
		Original: config.Owners.Original, Mirror: config.Owners.Mirror}), zones, nil
}

// See takes a snapshot of a cluster, with the objects that DNS names come from, or reads one.
func See(ctx context.Context, m *clusters.Clusters, from []string,
	connect func() (*kube.Client, error)) (*cluster.Snapshot, error) {
	if len(from) > 0 {
		return survey.See(ctx, m.App, from)
	}
	client, err := connect()
	if err != nil {
		return nil, err
	}
	snapshot, err := kube.Snapshot(ctx, client, m.Version, time.Now())
	if err != nil {
		return nil, err
	}
	return snapshot, kube.AddNames(ctx, client, snapshot)
}
