#!/bin/bash
# Replaces the network of a cluster with the controller: installs the chart, requests a change, asks whether you approve its
# plan, and watches. It needs helm, kubectl and theseus, and the kubeconfig of a cluster administrator.
# docs/tutorial-in-the-cluster.md does the same step by step.
#
#   in-the-cluster.sh theseus-0.2.0.tgz change.yaml manifest.yaml [flags of helm install]
#
# The Change must have manifestFrom.configMap: calico. If the chart has approvals=2, a second user has to approve while the
# script watches. If the chart has allowedSigners, name your key: SIGN=~/.ssh/id_ed25519 in-the-cluster.sh ... If the script
# failed, you can run it again.
#
# It writes the plan and the report to the current folder: plan.yaml and report.html.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 CHART CHANGE MANIFEST [FLAG OF HELM]..." >&2; exit 2; }
chart=$1 change=$2 manifest=$3
shift 3
namespace=theseus-system

echo "== Install the controller"
helm upgrade --install theseus "$chart" --namespace $namespace --create-namespace --wait "$@"

echo "== Request the change"
kubectl create configmap calico --namespace $namespace --from-file=calico.yaml="$manifest" --dry-run=client -o yaml |
	kubectl apply --server-side -f -
object=$(kubectl apply -f "$change" -o name)
kubectl wait --for=condition=Planned "$object" --timeout=5m || { kubectl describe "$object"; exit 1; }
kubectl describe "$object"

echo "== Read the plan"
migration=$(kubectl get "$object" -o jsonpath='{.status.migration}')
theseus plan show --migration "$migration" -o plan.yaml
read -r -p "Do you approve this plan? Type $migration: " answer
[ "$answer" = "$migration" ] || { echo "not approved; to withdraw the plan: kubectl delete $object" >&2; exit 1; }

echo "== Grant the controller the permissions that this plan needs, and approve the plan"
theseus rights operate --plan plan.yaml --for serviceaccount:$namespace/theseus-controller | kubectl apply -f -
theseus approve "$migration" --plan plan.yaml ${SIGN:+--sign "$SIGN"}

echo "== Watch. The controller goes on if this ends: \`theseus watch $migration\` shows it again"
code=0
theseus watch "$migration" || code=$?
theseus report "$migration" -o report.html
echo "== This took $((SECONDS / 60)) min $((SECONDS % 60)) s, from the installation to the report"
exit $code
