package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/step"
)

// Said returns the last value of a parameter in the log of an agent on a node, and its time. Both are empty if the log
// of the pod that the selector matches there does not have it.
func Said(ctx context.Context, client kubernetes.Interface, namespace, selector, node string,
	what step.Saying) (value, at string, err error) {
	words, err := SaidOf(ctx, client, namespace, selector, node, what.Container, []string{what.Parameter})
	return words[what.Parameter].Value, words[what.Parameter].At, err
}

// Word is the value of a parameter in an agent's log, and its time.
type Word struct{ Value, At string }

// SaidOf is Said for several parameters at once; the result has no entry for a parameter that is not in the log.
func SaidOf(ctx context.Context, client kubernetes.Interface, namespace, selector, node, container string,
	parameters []string) (map[string]Word, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no pod of %s is on %s", selector, node)
	}
	log, err := client.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name,
		&corev1.PodLogOptions{Container: container}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("the log of %s on %s: %w", container, node, err)
	}
	defer log.Close()
	words := map[string]Word{}
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		for _, name := range parameters {
			if value, at, ok := setting.InLog(container, line, name); ok {
				words[name] = Word{value, at}
			}
		}
		if err == io.EOF {
			return words, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the log of %s on %s: %w", container, node, err)
		}
	}
}
