package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// weave is upstream's manifest with the release's images, as the release names them, and with what its
// documentation tells a user to set: the pods' range; no Open vSwitch data path, which a kernel without
// the module does not have; and no telemetry.
func weave(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("Weave Net needs a pod CIDR")
	}
	image := func(name string) phrase.Edit {
		const policy = "'\n              imagePullPolicy: "
		return phrase.Edit{
			From: "image: 'weaveworks/" + name + ":latest" + policy + "Always",
			To:   "image: 'docker.io/weaveworks/" + name + ":2.6.5" + policy + "IfNotPresent",
		}
	}
	const env = "- /home/weave/launch.sh\n              env:\n"
	return upstream(params, "weave", "github.com/weaveworks/weave", "prog/weave-kube/weave-daemonset-k8s-1.11.yaml",
		[]phrase.Edit{
			image("weave-kube"), image("weave-npc"),
			{From: env, To: env + fmt.Sprintf(`                - name: IPALLOC_RANGE
                  value: %q
                - name: WEAVE_NO_FASTDP
                  value: "1"
                - name: CHECKPOINT_DISABLE
                  value: "1"
`, params.PodCIDR)},
		})
}
