package app

import (
	"io"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Streams are the three standard streams.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Kubeconfig leads to the cluster. The command line's is its flags: what only asks (asking) does without those.
type Kubeconfig interface {
	ToRawKubeConfigLoader() clientcmd.ClientConfig
	ToRESTConfig() (*rest.Config, error)
}

// App holds the streams and settings that all commands share.
type App struct {
	Streams
	Kubeconfig Kubeconfig
	Context    *string // value of --context; "" for the current one
	Signals    *interrupt.Signals
	Output     string // value of -o: text, json or another form, or a file; "" for the command's own
	Version    string // of this program
}

// noCluster is the hint when no kubeconfig leads to a cluster.
const noCluster = "name a kubeconfig with --kubeconfig; snapshot, check and plan also read files, with --from"

// Client connects to the cluster of the current kubeconfig. No request is sent yet.
func (a *App) Client() (*kube.Client, error) {
	if raw, err := a.Kubeconfig.ToRawKubeConfigLoader().RawConfig(); err == nil &&
		len(raw.Clusters) == 0 && !elsewhere() {
		return nil, exit.Fail(exit.Failed, noCluster, "no cluster: there is no kubeconfig")
	}
	config, err := a.Kubeconfig.ToRESTConfig()
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "; json parse error") // the rest is about Go's types
		return nil, exit.Fail(exit.Failed, noCluster, "no cluster: %s", why)
	}
	return kube.New(config, a.Version)
}

// elsewhere says whether the cluster is known without a kubeconfig: inside a pod, or from the environment.
func elsewhere() bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("KUBERNETES_MASTER") != ""
}
