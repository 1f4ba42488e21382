package network

import (
	"cmp"
	"fmt"
	"path"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// bridge is the plainest of networks: a bridge and a list of addresses per node. Routes between the
// nodes are not its business.
func bridge(params Params) []File {
	const conflist = `{
  "cniVersion": "0.3.1",
  "name": "bridge",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isDefaultGateway": true,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`
	return []File{{
		Path:    path.Join(cmp.Or(params.ConfDir, spec.DefaultConfDir), "10-bridge.conflist"),
		Mode:    0o644,
		Content: fmt.Appendf(nil, conflist, params.NodePodCIDR),
	}}
}
