// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// testCase is a pod before and after a webhook.
type testCase struct {
	// flags are those of Flags.
	flags string
	// account contains the annotations of the ServiceAccount; "none" means no ServiceAccount.
	account string
	// pod contains the metadata and the spec of the pod, and want those after the webhook.
	pod, want string
	// denied is a part of the error, or "" if there is none.
	denied string
}

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &v
}

func newPeer(t *testing.T, flags string) Peer {
	t.Helper()
	peer, err := decode[Flags](t, flags).Peer()
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

func run(t *testing.T, tests map[string]testCase) {
	t.Helper()
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var account *corev1.ServiceAccount
			if tt.account != "none" {
				account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: *decode[map[string]string](t, tt.account)}}
			}
			pod, want := decode[corev1.Pod](t, tt.pod), tt.want
			if want == "" {
				want = tt.pod
			}
			err := Admit(newPeer(t, tt.flags), pod, account)
			if tt.denied != "" {
				if err == nil || !strings.Contains(err.Error(), tt.denied) {
					t.Fatalf("got error %v, want one with %q", err, tt.denied)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode[corev1.Pod](t, want), pod); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	plain = "{spec: {containers: [{name: main}]}}"
	role  = "{eks.amazonaws.com/role-arn: 'arn:aws:iam::111122223333:role/app'}"

	eksEnv        = "{name: AWS_ROLE_ARN, value: 'arn:aws:iam::111122223333:role/app'}, {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /var/run/secrets/eks.amazonaws.com/serviceaccount/token}"
	eksMount      = "{name: aws-iam-token, mountPath: /var/run/secrets/eks.amazonaws.com/serviceaccount, readOnly: true}"
	eksVolumeYAML = "{name: aws-iam-token, projected: {sources: [{serviceAccountToken: {audience: sts.amazonaws.com, expirationSeconds: 86400, path: token}}]}}"
)

const (
	ofApp      = "{metadata: {namespace: team}, spec: {serviceAccountName: app}}"
	agentMount = "{name: eks-pod-identity-token, mountPath: /var/run/secrets/pods.eks.amazonaws.com/serviceaccount, readOnly: true}"
)

func agentVolume(expiration string) string {
	return "{name: eks-pod-identity-token, projected: {sources: [{serviceAccountToken: {audience: pods.eks.amazonaws.com, expirationSeconds: " + expiration + ", path: eks-pod-identity-token}}]}}"
}

func eksVolumeOf(audience, expiration string) string {
	return "{name: aws-iam-token, projected: {sources: [{serviceAccountToken: {audience: " + audience + ", expirationSeconds: " + expiration + ", path: token}}]}}"
}

func TestEKS(t *testing.T) {
	t.Parallel()
	run(t, map[string]testCase{
		"the volume comes first, the variables and mounts last": {
			flags: "eks: {}", account: role,
			pod:  "{spec: {containers: [{name: main, env: [{name: A, value: b}], volumeMounts: [{name: x, mountPath: /x}]}], initContainers: [{name: i}], volumes: [{name: x}]}}",
			want: "{spec: {containers: [{name: main, env: [{name: A, value: b}, " + eksEnv + "], volumeMounts: [{name: x, mountPath: /x}, " + eksMount + "]}], initContainers: [{name: i, env: [" + eksEnv + "], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeYAML + ", {name: x}]}}",
		},
		"the region and the endpoints come before the role": {
			flags: "eks: {awsDefaultRegion: eu-central-1, stsRegionalEndpoint: true}", account: role, pod: plain,
			want: "{spec: {containers: [{name: main, env: [{name: AWS_STS_REGIONAL_ENDPOINTS, value: regional}, {name: AWS_DEFAULT_REGION, value: eu-central-1}, {name: AWS_REGION, value: eu-central-1}, " + eksEnv + "], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"a role of the container's own keeps the mount and the region": {
			flags: "eks: {awsDefaultRegion: eu-central-1}", account: role,
			pod:  "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: own}]}]}}",
			want: "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: own}, {name: AWS_DEFAULT_REGION, value: eu-central-1}, {name: AWS_REGION, value: eu-central-1}], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"a role and a region of the container's own keep the mount": {
			flags: "eks: {}", account: role,
			pod:  "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: own}, {name: AWS_REGION, value: own}]}]}}",
			want: "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: own}, {name: AWS_REGION, value: own}], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"all three kinds of variables leave the container without a mount": {
			flags: "eks: {}", account: role,
			pod:  "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN}, {name: AWS_REGION}, {name: AWS_STS_REGIONAL_ENDPOINTS}]}]}}",
			want: "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN}, {name: AWS_REGION}, {name: AWS_STS_REGIONAL_ENDPOINTS}]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"a volume of its name counts as its own, whatever it is": {
			flags: "eks: {}", account: role,
			pod:  "{spec: {containers: [{name: main, volumeMounts: [{name: aws-iam-token, mountPath: /x}]}], volumes: [{name: aws-iam-token, emptyDir: {}}]}}",
			want: "{spec: {containers: [{name: main, env: [" + eksEnv + "], volumeMounts: [{name: aws-iam-token, mountPath: /x}]}], volumes: [{name: aws-iam-token, emptyDir: {}}]}}",
		},
		"a skipped container gets nothing, and the volume stays": {
			flags: "eks: {}", account: role,
			pod:  "{metadata: {annotations: {eks.amazonaws.com/skip-containers: 'main, b'}}, spec: {containers: [{name: main}, {name: b}]}}",
			want: "{metadata: {annotations: {eks.amazonaws.com/skip-containers: 'main, b'}}, spec: {containers: [{name: main}, {name: b, env: [" + eksEnv + "], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"the pod's lifetime overrides the ServiceAccount's, and is at least 600": {
			flags: "eks: {}", account: "{eks.amazonaws.com/role-arn: 'arn:aws:iam::111122223333:role/app', eks.amazonaws.com/token-expiration: '7200', eks.amazonaws.com/audience: ''}",
			pod:  "{metadata: {annotations: {eks.amazonaws.com/token-expiration: '0'}}, spec: {}}",
			want: "{metadata: {annotations: {eks.amazonaws.com/token-expiration: '0'}}, spec: {volumes: [{name: aws-iam-token, projected: {sources: [{serviceAccountToken: {audience: '', expirationSeconds: 600, path: token}}]}}]}}",
		},
		"a lifetime that is not a number is ignored, one of a year is not": {
			flags: "eks: {}", account: "{eks.amazonaws.com/role-arn: r, eks.amazonaws.com/token-expiration: '31536000'}",
			pod:  "{metadata: {annotations: {eks.amazonaws.com/token-expiration: x}}, spec: {}}",
			want: "{metadata: {annotations: {eks.amazonaws.com/token-expiration: x}}, spec: {volumes: [{name: aws-iam-token, projected: {sources: [{serviceAccountToken: {audience: sts.amazonaws.com, expirationSeconds: 31536000, path: token}}]}}]}}",
		},
		"the role's name gets the prefix": {
			flags: "eks: {composeRoleARN: 'arn:aws:iam::111122223333:role/', annotationPrefix: irsa, tokenMountPath: /t}", account: "{irsa/role-arn: app}", pod: plain,
			want: "{spec: {containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: 'arn:aws:iam::111122223333:role/app'}, {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /t/token}], volumeMounts: [{name: aws-iam-token, mountPath: /t, readOnly: true}]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"Windows by node selector has a Windows path in the variable alone": {
			flags: "eks: {}", account: role, pod: "{spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: main}]}}",
			want: `{spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: main, env: [{name: AWS_ROLE_ARN, value: 'arn:aws:iam::111122223333:role/app'}, {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: 'C:\var\run\secrets\eks.amazonaws.com\serviceaccount\token'}], volumeMounts: [` + eksMount + "]}], volumes: [" + eksVolumeYAML + "]}}",
		},
		"container credentials come before the role": {
			flags: "eks: {containerCredentials: [team/app]}", account: role, pod: plain,
			want: "{metadata: {labels: {eks.amazonaws.com/pod-identity: enabled}}, spec: {containers: [{name: main, env: [{name: AWS_CONTAINER_CREDENTIALS_FULL_URI, value: 'http://169.254.170.23/v1/credentials'}, {name: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, value: /var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token}], volumeMounts: [{name: eks-pod-identity-token, mountPath: /var/run/secrets/pods.eks.amazonaws.com/serviceaccount, readOnly: true}]}], volumes: [{name: eks-pod-identity-token, projected: {sources: [{serviceAccountToken: {audience: pods.eks.amazonaws.com, expirationSeconds: 86400, path: eks-pod-identity-token}}]}}]}}",
		},
		"container credentials get the region, the endpoints and a lifetime of less than a day": {
			flags: "eks: {containerCredentials: [team/app], awsDefaultRegion: eu-central-1, jitter: 7200}", account: "{eks.amazonaws.com/sts-regional-endpoints: 'true'}",
			pod:  "{spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: main}]}}",
			want: `{metadata: {labels: {eks.amazonaws.com/pod-identity: enabled}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: main, env: [{name: AWS_STS_REGIONAL_ENDPOINTS, value: regional}, {name: AWS_DEFAULT_REGION, value: eu-central-1}, {name: AWS_REGION, value: eu-central-1}, {name: AWS_CONTAINER_CREDENTIALS_FULL_URI, value: 'http://169.254.170.23/v1/credentials'}, {name: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, value: 'C:\var\run\secrets\pods.eks.amazonaws.com\serviceaccount\eks-pod-identity-token'}], volumeMounts: [` + agentMount + "]}], volumes: [" + agentVolume("79200") + "]}}",
		},
		"container credentials keep a lifetime that is set": {
			flags: "eks: {containerCredentials: [team/app], jitter: 1}", account: "{eks.amazonaws.com/token-expiration: '10000'}", pod: "{spec: {}}",
			want: "{metadata: {labels: {eks.amazonaws.com/pod-identity: enabled}}, spec: {volumes: [" + agentVolume("10000") + "]}}",
		},
		"container credentials with the ConfigMap, for an unknown ServiceAccount": {
			flags: "eks: {containerCredentials: [team/app], configMap: {team/app: {RoleARN: r, TokenExpiration: 20000}, '*/app': {TokenExpiration: 1}}}", account: "none", pod: ofApp,
			want: "{metadata: {namespace: team, labels: {eks.amazonaws.com/pod-identity: enabled}}, spec: {serviceAccountName: app, volumes: [" + agentVolume("20000") + "]}}",
		},
		"web identity has no jitter": {
			flags: "eks: {jitter: 1}", account: role, pod: "{spec: {}}", want: "{spec: {volumes: [" + eksVolumeYAML + "]}}",
		},
		"an entry of the ConfigMap has no default audience": {
			flags: "eks: {tokenExpiration: 7200, configMap: {team/app: {RoleARN: r}}}", account: "{}", pod: "{spec: {}}", want: "{spec: {volumes: [" + eksVolumeOf("''", "7200") + "]}}",
		},
		"an exact entry of the ConfigMap comes before one of all namespaces": {
			flags: "eks: {configMap: {team/app: {RoleARN: r, Audience: a, TokenExpiration: 700}, '*/app': {RoleARN: s, Audience: b}}}", account: "none", pod: ofApp,
			want: "{metadata: {namespace: team}, spec: {serviceAccountName: app, volumes: [" + eksVolumeOf("a", "700") + "]}}",
		},
		"an entry of the ConfigMap for all namespaces": {
			flags: "eks: {configMap: {'*/app': {RoleARN: s, Audience: b, UseRegionalSTS: true}}}", account: "{}", pod: plain,
			want: "{spec: {containers: [{name: main, env: [{name: AWS_STS_REGIONAL_ENDPOINTS, value: regional}, {name: AWS_ROLE_ARN, value: s}, {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /var/run/secrets/eks.amazonaws.com/serviceaccount/token}], volumeMounts: [" + eksMount + "]}], volumes: [" + eksVolumeOf("b", "86400") + "]}}",
		},
		"annotations come before the ConfigMap": {
			flags: "eks: {configMap: {team/app: {RoleARN: r, Audience: a}}}", account: role, pod: "{spec: {}}", want: "{spec: {volumes: [" + eksVolumeYAML + "]}}",
		},
		"a pattern in the ConfigMap is no pattern":  {flags: "eks: {configMap: {'te*/app': {RoleARN: r}, '*/ap*': {RoleARN: r}}}", account: "{}", pod: plain},
		"an unknown ServiceAccount has no identity": {flags: "eks: {}", account: "none", pod: plain},
		"an empty role is no identity":              {flags: "eks: {}", account: "{eks.amazonaws.com/role-arn: ''}", pod: plain},
		"a pod with the skip label is not sent":     {flags: "eks: {}", account: role, pod: "{metadata: {labels: {eks.amazonaws.com/skip-pod-identity-webhook: ''}}, spec: {containers: [{name: main}]}}"},
	})
}

const (
	labeled = "metadata: {name: p, labels: {azure.workload.identity/use: 'true'}}"
	client  = "{azure.workload.identity/client-id: c}"

	azureAuthority = "{name: AZURE_AUTHORITY_HOST, value: 'https://login.microsoftonline.com/'}"
	// The first 30 digits of the SHA-256 of "p".
	newName     = "azure-workload-identity-reserved-148de9c5a7a44d19e56cd9ae1a554b"
	newEnv      = "{name: AZURE_CLIENT_ID, value: c}, {name: AZURE_TENANT_ID, value: t}, {name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/wi/token/azure-identity-token}, " + azureAuthority
	newMount    = "{name: " + newName + ", mountPath: /var/run/secrets/azure/wi, readOnly: true}"
	newVolume   = "{name: " + newName + ", projected: {sources: [{serviceAccountToken: {audience: 'api://AzureADTokenExchange', expirationSeconds: 3600, path: token/azure-identity-token}}]}}"
	olderMount  = "{name: azure-identity-token, mountPath: /var/run/secrets/azure/tokens, readOnly: true}"
	olderFile   = "{name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/tokens/azure-identity-token}"
	olderVolume = "{name: azure-identity-token, projected: {sources: [{serviceAccountToken: {audience: 'api://AzureADTokenExchange', expirationSeconds: 3600, path: azure-identity-token}}]}}"
)

const bindings = "identityBindings: {annotationSuffix: identity-binding, audience: 'api://AKSIdentityBinding', tokenProxy: 'https://proxy', sniName: sni, caConfigMap: ca}"

// bound returns a pod that asks for an identity binding.
func bound(value, spec string) string {
	return "{metadata: {name: p, labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/use-identity-binding: '" + value + "'}}, spec: " + spec + "}"
}

func TestAzure(t *testing.T) {
	t.Parallel()
	expires := func(pod string) string {
		return "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/service-account-token-expiration: '" + pod + "'}}, spec: {}}"
	}
	run(t, map[string]testCase{
		"the newer layout": {
			flags: "azure: {tenantID: t}", account: client, pod: "{" + labeled + ", spec: {containers: [{name: main}], volumes: [{name: x}]}}",
			want: "{" + labeled + ", spec: {containers: [{name: main, env: [" + newEnv + "], volumeMounts: [" + newMount + "]}], volumes: [{name: x}, " + newVolume + "]}}",
		},
		"the older layout": {
			flags: "azure: {tenantID: t, version: '1.5'}", account: client, pod: "{" + labeled + ", spec: {containers: [{name: main}]}}",
			want: "{" + labeled + ", spec: {containers: [{name: main, env: [{name: AZURE_CLIENT_ID, value: c}, {name: AZURE_TENANT_ID, value: t}, " + olderFile + ", " + azureAuthority + "], volumeMounts: [" + olderMount + "]}], volumes: [" + olderVolume + "]}}",
		},
		"each variable stays by itself, also an empty one": {
			flags: "azure: {tenantID: t}", account: client, pod: "{" + labeled + ", spec: {containers: [{name: main, env: [{name: AZURE_CLIENT_ID}, {name: AZURE_TENANT_ID, value: own}, {name: AZURE_AUTHORITY_HOST, value: own}]}]}}",
			want: "{" + labeled + ", spec: {containers: [{name: main, env: [{name: AZURE_CLIENT_ID}, {name: AZURE_TENANT_ID, value: own}, {name: AZURE_AUTHORITY_HOST, value: own}, {name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/wi/token/azure-identity-token}], volumeMounts: [" + newMount + "]}], volumes: [" + newVolume + "]}}",
		},
		"a ServiceAccount without annotations gets a token without a client": {
			flags: "azure: {version: '1.5'}", account: "{azure.workload.identity/tenant-id: ''}", pod: "{" + labeled + ", spec: {initContainers: [{name: i}]}}",
			want: "{" + labeled + ", spec: {initContainers: [{name: i, env: [" + olderFile + ", " + azureAuthority + "], volumeMounts: [" + olderMount + "]}], volumes: [" + olderVolume + "]}}",
		},
		"the newer version replaces a volume and a mount of its name": {
			flags: "azure: {tenantID: t}", account: client, pod: "{" + labeled + ", spec: {containers: [{name: main, volumeMounts: [{name: " + newName + ", mountPath: /x}]}], volumes: [{name: " + newName + "}]}}",
			want: "{" + labeled + ", spec: {containers: [{name: main, env: [" + newEnv + "], volumeMounts: [" + newMount + "]}], volumes: [" + newVolume + "]}}",
		},
		"the older version adds no volume if another one has its file": {
			flags: "azure: {version: '1.5'}", account: "{}", pod: "{" + labeled + ", spec: {containers: [{name: main, volumeMounts: [{name: azure-identity-token, mountPath: /x}]}], volumes: [{name: x, projected: {sources: [{serviceAccountToken: {path: azure-identity-token}}]}}]}}",
			want: "{" + labeled + ", spec: {containers: [{name: main, env: [" + olderFile + ", " + azureAuthority + "], volumeMounts: [{name: azure-identity-token, mountPath: /x}]}], volumes: [{name: x, projected: {sources: [{serviceAccountToken: {path: azure-identity-token}}]}}]}}",
		},
		"names to skip are trimmed, between semicolons": {
			flags: "azure: {version: '1.5'}", account: "{}",
			pod:  "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/skip-containers: 'a; b;'}}, spec: {containers: [{name: a}, {name: b}]}}",
			want: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/skip-containers: 'a; b;'}}, spec: {containers: [{name: a}, {name: b}], volumes: [" + olderVolume + "]}}",
		},
		"the proxy is added whatever the value": {
			flags: "azure: {version: '1.5'}", account: "{}",
			pod: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: 'false'}}, spec: {initContainers: [{name: i}]}}",
			want: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: 'false'}}, spec: {initContainers: [" +
				"{name: azwi-proxy, image: proxy, args: ['--proxy-port=8000'], restartPolicy: Always, env: [" + olderFile + ", " + azureAuthority + "], volumeMounts: [" + olderMount + "]}, " +
				"{name: i, env: [" + olderFile + ", " + azureAuthority + "], volumeMounts: [" + olderMount + "]}, " +
				"{name: azwi-proxy-init, image: proxy-init, securityContext: {privileged: true, runAsUser: 0}, env: [{name: PROXY_PORT, value: '8000'}, " + olderFile + ", " + azureAuthority + "], volumeMounts: [" + olderMount + "]}], volumes: [" + olderVolume + "]}}",
		},
		"an identity binding has the audience and the variables of the proxy": {
			flags: "azure: {tenantID: t, " + bindings + "}", account: client, pod: bound("TRUE", "{containers: [{name: main}]}"),
			want: bound("TRUE", "{containers: [{name: main, env: ["+newEnv+", {name: AZURE_KUBERNETES_TOKEN_PROXY, value: 'https://proxy'}, {name: AZURE_KUBERNETES_SNI_NAME, value: sni}, {name: AZURE_KUBERNETES_CA_FILE, value: /var/run/secrets/azure/wi/ca-cert/ca.crt}], volumeMounts: ["+newMount+"]}], volumes: ["+
				"{name: "+newName+", projected: {sources: [{serviceAccountToken: {audience: 'api://AKSIdentityBinding', expirationSeconds: 3600, path: token/azure-identity-token}}, {configMap: {name: ca, items: [{key: ca.crt, path: ca-cert/ca.crt}], optional: false}}]}}]}"),
		},
		"the certificate of an identity binding by a trust bundle or as it is": {
			flags: "azure: {identityBindings: {annotationSuffix: identity-binding, audience: a, caData: c, caTrustBundleSigner: s}}", account: "{}", pod: bound("true", "{containers: [{name: main}]}"),
			want: bound("true", "{containers: [{name: main, env: [{name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/wi/token/azure-identity-token}, "+azureAuthority+", {name: AZURE_KUBERNETES_CA_FILE, value: /var/run/secrets/azure/wi/ca-cert/ca.crt}, {name: AZURE_KUBERNETES_CA_DATA, value: c}], volumeMounts: ["+newMount+"]}], volumes: ["+
				"{name: "+newName+", projected: {sources: [{serviceAccountToken: {audience: a, expirationSeconds: 3600, path: token/azure-identity-token}}, {clusterTrustBundle: {signerName: s, path: ca-cert/ca.crt, optional: false}}]}}]}"),
		},
		"an identity binding with another value than true has no effect": {
			flags: "azure: {tenantID: t, " + bindings + "}", account: client, pod: bound("yes", "{}"), want: bound("yes", "{volumes: ["+newVolume+"]}"),
		},
		"without the flags, there are no identity bindings": {
			flags: "azure: {tenantID: t}", account: client, pod: bound("true", "{}"), want: bound("true", "{volumes: ["+newVolume+"]}"),
		},
		"the older version has no identity bindings": {
			flags: "azure: {version: '1.5', " + bindings + "}", account: client, pod: bound("true", "{}"), want: bound("true", "{volumes: ["+olderVolume+"]}"),
		},
		"each of the proxy's containers is added unless it is there": {
			flags: "azure: {version: '1.5'}", account: "{}",
			pod:  "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: '', azure.workload.identity/skip-containers: azwi-proxy;azwi-proxy-init}}, spec: {initContainers: [{name: azwi-proxy-init}]}}",
			want: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: '', azure.workload.identity/skip-containers: azwi-proxy;azwi-proxy-init}}, spec: {initContainers: [{name: azwi-proxy, image: proxy, args: ['--proxy-port=8000'], restartPolicy: Always}, {name: azwi-proxy-init}], volumes: [" + olderVolume + "]}}",
		},
		"a pod without the label is not sent":             {flags: "azure: {}", account: client, pod: plain},
		"a label with another value is none":              {flags: "azure: {}", account: client, pod: "{metadata: {labels: {azure.workload.identity/use: 'True'}}, spec: {containers: [{name: main}]}}"},
		"an unknown ServiceAccount denies the pod":        {flags: "azure: {}", account: "none", pod: "{" + labeled + "}", denied: "not found"},
		"a lifetime of the pod that is too short denies":  {flags: "azure: {}", account: "{azure.workload.identity/service-account-token-expiration: '4000'}", pod: expires("3599"), denied: "want 3600"},
		"a lifetime of the pod that is too long denies":   {flags: "azure: {}", account: "{}", pod: expires("86401"), denied: "want 3600"},
		"a lifetime of the ServiceAccount is used":        {flags: "azure: {}", account: "{azure.workload.identity/service-account-token-expiration: invalid}", pod: expires(""), denied: "invalid"},
		"the proxy and hostNetwork exclude each other":    {flags: "azure: {}", account: "{}", pod: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: ''}}, spec: {hostNetwork: true}}", denied: "hostNetwork"},
		"a port of the proxy that is no number is denied": {flags: "azure: {}", account: "{}", pod: "{metadata: {labels: {azure.workload.identity/use: 'true'}, annotations: {azure.workload.identity/inject-proxy-sidecar: '', azure.workload.identity/proxy-sidecar-port: x}}}", denied: "proxy-sidecar-port"},
	})
}

const (
	gcpAccount = "{cloud.google.com/workload-identity-provider: projects/1/locations/global/workloadIdentityPools/p/providers/q, cloud.google.com/service-account-email: a@proj.iam.gserviceaccount.com"
	gcpNotes   = "cloud.google.com/workload-identity-provider: projects/1/locations/global/workloadIdentityPools/p/providers/q, cloud.google.com/service-account-email: a@proj.iam.gserviceaccount.com, cloud.google.com/audience: sts.googleapis.com"
	gcpToken   = "{name: gcp-iam-token, mountPath: /var/run/secrets/sts.googleapis.com/serviceaccount, readOnly: true}"
	gcpConfig  = "{name: gcloud-config, mountPath: /var/run/secrets/gcloud/config}"
	gcpRest    = "{name: CLOUDSDK_COMPUTE_REGION}, {name: CLOUDSDK_CORE_PROJECT, value: proj}"
	gcpSetup   = "{name: gcloud-setup, image: gcloud, command: [setup], volumeMounts: [" + gcpToken + ", " + gcpConfig + "], securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}, " +
		"env: [{name: GCP_WORKLOAD_IDENTITY_PROVIDER, value: projects/1/locations/global/workloadIdentityPools/p/providers/q}, {name: CLOUDSDK_CONFIG, value: /var/run/secrets/gcloud/config}, {name: GCP_SERVICE_ACCOUNT, value: a@proj.iam.gserviceaccount.com}, {name: CLOUDSDK_CORE_PROJECT, value: proj}]}"
	gcpEnv        = "{name: GOOGLE_APPLICATION_CREDENTIALS, value: /var/run/secrets/gcloud/config/federation.json}, {name: CLOUDSDK_CONFIG, value: /var/run/secrets/gcloud/config}"
	gcpDirectFile = `{"audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q","credential_source":{"file":"/var/run/secrets/sts.googleapis.com/serviceaccount/token","format":{"type":"text"}},"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@proj.iam.gserviceaccount.com:generateAccessToken","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token","type":"external_account"}`
)

func gcpVolumeYAML(expiration string) string {
	return "{name: gcp-iam-token, projected: {defaultMode: 288, sources: [{serviceAccountToken: {audience: sts.googleapis.com, expirationSeconds: " + expiration + ", path: token}}]}}"
}

func TestGCP(t *testing.T) {
	t.Parallel()
	run(t, map[string]testCase{
		"gcloud mode adds a first init container": {
			flags: "gcp: {setupCommand: [setup]}", account: gcpAccount + "}", pod: "{spec: {initContainers: [{name: i}]}}",
			want: "{metadata: {annotations: {" + gcpNotes + ", cloud.google.com/token-expiration: '86400'}}, spec: {initContainers: [" + gcpSetup + ", {name: i, env: [" + gcpEnv + ", " + gcpRest + "], volumeMounts: [" + gcpToken + ", " + gcpConfig + "]}], volumes: [" + gcpVolumeYAML("86400") + ", {name: gcloud-config, emptyDir: {}}]}}",
		},
		"gcloud mode replaces what has its names": {
			flags: "gcp: {setupCommand: [setup], gcpDefaultRegion: r}", account: gcpAccount + "}",
			pod:  "{spec: {initContainers: [{name: i}, {name: gcloud-setup, image: own}], containers: [{name: main, env: [{name: GOOGLE_APPLICATION_CREDENTIALS, value: own}, {name: CLOUDSDK_CORE_PROJECT, value: own}], volumeMounts: [{name: gcp-iam-token, mountPath: /x}]}], volumes: [{name: gcloud-config}, {name: gcp-iam-token}]}}",
			want: "{metadata: {annotations: {" + gcpNotes + ", cloud.google.com/token-expiration: '86400'}}, spec: {initContainers: [{name: i, env: [" + gcpEnv + ", {name: CLOUDSDK_COMPUTE_REGION, value: r}, {name: CLOUDSDK_CORE_PROJECT, value: proj}], volumeMounts: [" + gcpToken + ", " + gcpConfig + "]}, " + gcpSetup + "], containers: [{name: main, env: [{name: GOOGLE_APPLICATION_CREDENTIALS, value: /var/run/secrets/gcloud/config/federation.json}, {name: CLOUDSDK_CORE_PROJECT, value: own}, {name: CLOUDSDK_CONFIG, value: /var/run/secrets/gcloud/config}, {name: CLOUDSDK_COMPUTE_REGION, value: r}], volumeMounts: [" + gcpToken + ", " + gcpConfig + "]}], volumes: [{name: gcloud-config, emptyDir: {}}, " + gcpVolumeYAML("86400") + "]}}",
		},
		"direct mode has the file in an annotation": {
			flags: "gcp: {}", account: gcpAccount + ", cloud.google.com/injection-mode: Direct, cloud.google.com/token-expiration: '60'}", pod: "{metadata: {annotations: {cloud.google.com/skip-containers: 'a, b'}}, spec: {containers: [{name: main}, {name: b}]}}",
			want: "{metadata: {annotations: {" + gcpNotes + ", cloud.google.com/skip-containers: 'a, b', cloud.google.com/token-expiration: '3600', cloud.google.com/external-credentials-json: '" + gcpDirectFile + "'}}, spec: {containers: [{name: main, env: [{name: GOOGLE_APPLICATION_CREDENTIALS, value: /var/run/secrets/workload-identity/federation.json}, " + gcpRest + "], volumeMounts: [" + gcpToken + ", {name: external-credential-config, mountPath: /var/run/secrets/workload-identity, readOnly: true}]}, {name: b}], volumes: [" + gcpVolumeYAML("3600") + ", {name: external-credential-config, downwardAPI: {defaultMode: 288, items: [{path: federation.json, fieldRef: {apiVersion: v1, fieldPath: \"metadata.annotations['cloud.google.com/external-credentials-json']\"}}]}}]}}",
		},
		"an empty e-mail is not an absent one": {
			flags: "gcp: {setupCommand: [setup]}", account: "{cloud.google.com/workload-identity-provider: projects/1/locations/global/workloadIdentityPools/p/providers/q/r, cloud.google.com/service-account-email: '', cloud.google.com/injection-mode: gcloud}",
			pod: "{metadata: {annotations: {cloud.google.com/skip-containers: i}}, spec: {initContainers: [{name: gcloud-setup, image: own}, {name: i}]}}",
			want: "{metadata: {annotations: {cloud.google.com/skip-containers: i, cloud.google.com/workload-identity-provider: projects/1/locations/global/workloadIdentityPools/p/providers/q/r, cloud.google.com/service-account-email: '', cloud.google.com/audience: sts.googleapis.com, cloud.google.com/token-expiration: '86400'}}, spec: {initContainers: [" +
				strings.NewReplacer("providers/q", "providers/q/r", "a@proj.iam.gserviceaccount.com", "''", ", value: proj}", "}").Replace(gcpSetup) + ", {name: i}], volumes: [" + gcpVolumeYAML("86400") + ", {name: gcloud-config, emptyDir: {}}]}}",
		},
		"half an identity denies the pod":                    {flags: "gcp: {}", account: "{cloud.google.com/service-account-email: a@b}", pod: plain, denied: "must both be set"},
		"a malformed provider denies the pod":                {flags: "gcp: {}", account: "{cloud.google.com/service-account-email: a@b, cloud.google.com/workload-identity-provider: //iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q}", pod: plain, denied: "workload-identity-provider"},
		"a malformed lifetime denies even without identity":  {flags: "gcp: {}", account: "{cloud.google.com/token-expiration: 1h}", pod: plain, denied: "token-expiration"},
		"a malformed lifetime of the pod denies":             {flags: "gcp: {}", account: gcpAccount + "}", pod: "{metadata: {annotations: {cloud.google.com/token-expiration: x}}}", denied: "token-expiration"},
		"an unknown mode denies even without identity":       {flags: "gcp: {}", account: "{cloud.google.com/injection-mode: x}", pod: plain, denied: "injection-mode"},
		"an empty mode is not an absent one":                 {flags: "gcp: {}", account: gcpAccount + ", cloud.google.com/injection-mode: ''}", pod: plain, denied: "injection-mode"},
		"two empty annotations are not absent ones":          {flags: "gcp: {}", account: "{cloud.google.com/workload-identity-provider: '', cloud.google.com/service-account-email: ''}", pod: plain, denied: "workload-identity-provider"},
		"an unknown ServiceAccount has no identity":          {flags: "gcp: {}", account: "none", pod: plain},
		"annotations of other programs with the same prefix": {flags: "gcp: {}", account: "{cloud.google.com/neg: '{}'}", pod: plain},
	})
}

func TestFlagsNameOnePeer(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"{}", "{eks: {}, gcp: {}}"} {
		if peer, err := decode[Flags](t, flags).Peer(); err == nil {
			t.Errorf("%s: got %T, want an error", flags, peer)
		}
	}
}

// API servers call webhooks in the order of the names of their configurations. The
// name of Lanyard's is lanyard.
func TestTheOrderBesideLanyard(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]struct{ before, again bool }{
		"eks: {}": {before: false, again: false}, "azure: {}": {before: true, again: true}, "gcp: {}": {before: true, again: false},
		"eks: {reinvocationPolicy: IfNeeded}": {before: false, again: true}, "azure: {reinvocationPolicy: Never}": {before: true, again: false}, "gcp: {reinvocationPolicy: IfNeeded}": {before: true, again: true},
	} {
		peer := newPeer(t, flags)
		if before, again := peer.Registration().Name < "lanyard", Reinvoked(peer); before != want.before || again != want.again {
			t.Errorf("%s: got before Lanyard %t and reinvoked %t, want %t and %t", flags, before, again, want.before, want.again)
		}
	}
}

func TestTheHandlerReadsTheServiceAccount(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(gcpAccountObject(t, "app"), gcpAccountObject(t, "default"))
	for account, injected := range map[string]bool{"app": true, "other": false, "": false} {
		pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"serviceAccountName":"` + account + `","containers":[{"name":"main"}]}}`
		response := review(t, NewHandler(&GCP{}, client), pod)
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch.Apply([]byte(pod))
		if err != nil || !response.Allowed || strings.Contains(string(got), "federation.json") != injected {
			t.Errorf("%s: got allowed %t, pod %s and error %v, want injected %t", account, response.Allowed, got, err, injected)
		}
	}
	if response := review(t, NewHandler(&Azure{}, client), `{"apiVersion":"v1","kind":"Pod","spec":{"serviceAccountName":"other"}}`); response.Allowed || !strings.Contains(response.Result.Message, "not found") {
		t.Errorf("got %+v, want a denial", response)
	}
}

func gcpAccountObject(t *testing.T, name string) *corev1.ServiceAccount {
	t.Helper()
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: *decode[map[string]string](t, gcpAccount+", cloud.google.com/injection-mode: direct}")}}
}

func review(t *testing.T, handler http.Handler, pod string) *admissionv1.AdmissionResponse {
	t.Helper()
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","namespace":"team","operation":"CREATE","resource":{"version":"v1","resource":"pods"},"object":` + pod + `}}`
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("got %s and error %v", recorder.Body, err)
	}
	return got.Response
}
