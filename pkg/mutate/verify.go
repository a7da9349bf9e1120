// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// VerifyContainer is the name of the init container that presents the tokens of a pod to the clouds,
// for annotations.Verify. It is the last of its list, so the sidecars of the pod start before it. An
// init container that already has this name stays: it may need a proxy, or another CA.
const VerifyContainer = "lanyard-verify"

// verifyArgs are the arguments of lanyard-webhook in the container, as JSON, by the value of
// annotations.Verify.
var verifyArgs = map[string]string{
	annotations.VerifyWait: `["verify"]`,
	annotations.VerifyWarn: `["verify","--warn"]`,
}

// verifyResources are both the requests and the limits, so that a pod of the QoS class Guaranteed
// stays in it. The CPU is for TLS handshakes. test/e2e/clouds/cli runs the program with this memory.
const verifyResources = `{"cpu":"100m","memory":"32Mi"}`

// verifyUser is the user of the image, for a pod that runs as root. Otherwise, the container runs as
// the user of the pod, because OpenShift allows only users in the range of the namespace.
const verifyUser = `"runAsUser":65532,`

// isVerifier reports whether the container is the one that verifies.
func (m *mutation) isVerifier(c *pod.Container) bool {
	return m.verify != "" && c.Kind == pod.InitContainers && string(c.Name) == VerifyContainer
}

// addVerifier adds the container that verifies to a pod that lacks it, with the variables and mounts
// of any other container. exists reports whether the pod has the container.
func (m *mutation) addVerifier(exists bool) {
	if m.verify == "" || exists {
		return
	}
	if why, fix := m.cannotVerify(); why != "" {
		m.findings = append(m.findings, Finding{
			Reason: reason.NotVerified, Field: "spec.initContainers[" + VerifyContainer + "]",
			Detail: "its ServiceAccount has the annotation " + annotations.Verify + ", but " + why + ", so the pod starts without it", Fix: fix,
		})
		return
	}
	c, findings := &pod.Container{Kind: pod.InitContainers, Name: []byte(VerifyContainer)}, m.findings
	added := plan{container: c, mounts: m.missingMounts(c, free), variables: m.missingVariables(c)}
	c.ArgsText = []byte(verifyArgs[m.verify])
	m.findings, m.changes.verifier = findings, &added
	text := m.verifier(added.mounts, added.variables)
	if m.pod.HasInitContainers {
		m.changes.patch.Add("/spec/initContainers/-", text)
	} else {
		m.changes.patch.Add("/spec/initContainers", fmt.Appendf(nil, "[%s]", text))
	}
}

// cannotVerify returns the reason why the pod does not get the container, and the next step, or ""
// if it does.
func (m *mutation) cannotVerify() (why, fix string) {
	switch {
	case m.verifyImage == "":
		return "the cluster has no image that verifies", "Set verifiedStart.enabled in the chart, or remove the annotation."
	case m.pod.Windows:
		return "the image that verifies is for Linux", "Remove the annotation, or use another ServiceAccount for Windows."
	case slices.ContainsFunc(m.pod.Containers, func(c pod.Container) bool { return string(c.Name) == VerifyContainer }):
		return "a container that is not an init container has the name " + VerifyContainer, "Rename the container."
	case len(m.pod.Containers) >= pod.MaxContainers:
		return fmt.Sprintf("a pod has at most %d containers", pod.MaxContainers), "Use fewer containers."
	}
	return "", ""
}

// verifier returns the JSON of the container that verifies.
func (m *mutation) verifier(mounts, variables [][]byte) []byte {
	user := ""
	if m.pod.RunsAsRoot() {
		user = verifyUser
	}
	return fmt.Appendf(nil, `{"name":%s,"image":%s,"args":%s,"env":[%s],"resources":{"limits":%[5]s,"requests":%[5]s},"volumeMounts":[%s],`+
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent",`+
		`"securityContext":{"capabilities":{"drop":["ALL"]},%s"runAsNonRoot":true,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,"seccompProfile":{"type":"RuntimeDefault"}}}`,
		quoted(VerifyContainer), quoted(m.verifyImage), verifyArgs[m.verify], bytes.Join(variables, []byte(",")), verifyResources, bytes.Join(mounts, []byte(",")), user)
}
