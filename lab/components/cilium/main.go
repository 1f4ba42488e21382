// Command cilium-says is what Cilium's pod does with its settings before its agent does anything: cilium-config and
// CiliumNodeConfigs are read from the API and merged by the code of its init container, and every setting is written to
// the log by the code with which the agent begins. Nothing else of Cilium is in it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/viper"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2alpha1"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/option/resolver"
)

// clients are the two that settings are read with.
type clients struct {
	client.Clientset
	kubernetes *kubernetes.Clientset
	cilium     *versioned.Clientset
}

func (c clients) CoreV1() corev1.CoreV1Interface { return c.kubernetes.CoreV1() }
func (c clients) CiliumV2alpha1() ciliumv2alpha1.CiliumV2alpha1Interface {
	return c.cilium.CiliumV2alpha1()
}
func (c clients) CiliumV2() ciliumv2.CiliumV2Interface { return c.cilium.CiliumV2() }

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("node", "", "the node that the pod is on")
	namespace := flag.String("namespace", "kube-system", "the pod's namespace")
	flag.Parse()
	if err := say(*kubeconfig, *node, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func say(kubeconfig, node, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	var c clients
	if c.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.cilium, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	settings, err := resolver.ResolveConfigurations(context.Background(), logging.DefaultSlogLogger, c, node, []resolver.ConfigSource{
		{Kind: resolver.KindConfigMap, Namespace: namespace, Name: "cilium-config"}, {Kind: resolver.KindNodeConfig, Namespace: namespace}}, nil, nil)
	if err != nil {
		return err
	}
	merged := map[string]any{}
	for key, value := range settings {
		merged[key] = value
	}
	vp := viper.New()
	if err := option.MergeConfig(vp, merged); err != nil {
		return err
	}
	option.LogRegisteredSlogOptions(vp, logging.DefaultSlogLogger)
	return nil
}
