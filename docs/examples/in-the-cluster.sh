#!/bin/bash
# Replaces the network of a cluster by its controller alone: installs the chart, requests a change, approves its plan, and
# watches. It needs helm, kubectl and theseus, and the kubeconfig of a cluster administrator.
# docs/how-to/change-in-the-cluster.md explains each command.
#
#   in-the-cluster.sh theseus-0.2.0.tgz change.yaml manifest.yaml [flags of helm install]
#
# It writes the plan and the report to the current folder: plan.yaml and report.html.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 CHART CHANGE MANIFEST [FLAG OF HELM]..." >&2; exit 2; }
chart=$1 change=$2 manifest=$3
shift 3
namespace=theseus-system

echo "== Install the controller"
helm install theseus "$chart" --namespace $namespace --create-namespace --wait "$@"

echo "== Request the change"
kubectl create configmap calico --namespace $namespace --from-file=calico.yaml="$manifest"
object=$(kubectl apply -f "$change" -o name)
kubectl wait --for=condition=Planned "$object" --timeout=5m || { kubectl describe "$object"; exit 1; }
kubectl describe "$object"

echo "== Read the plan"
migration=$(kubectl get "$object" -o jsonpath='{.status.migration}')
theseus plan show --migration "$migration" -o plan.yaml

echo "== Grant the controller the permissions that this plan needs, and approve the plan"
theseus rights operate --plan plan.yaml --for serviceaccount:$namespace/theseus-controller | kubectl apply -f -
theseus approve "$migration" --plan plan.yaml

echo "== Watch. The controller goes on if this ends: \`theseus watch $migration\` shows it again"
theseus watch "$migration"

theseus report -o report.html
