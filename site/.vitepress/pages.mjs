// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The pages of the site: README.md, which is the home page, and docs/; their order and
// their links.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path/posix'
import { fileURLToPath } from 'node:url'

export const repository = 'https://github.com/lanyard-dev/lanyard'

// published is the address of the site of a version.
export const published = (version) => `https://lanyard-dev.github.io/lanyard/${version}/`

// The root of the repository.
export const root = fileURLToPath(new URL('../..', import.meta.url))

// versions returns "main" and the newest releases. A pre-release has no site.
export function versions() {
  const tags = execFileSync('git', ['tag', '--list', 'v*', '--sort=-v:refname'], { cwd: root, encoding: 'utf8' })
  return ['main', ...tags.split('\n').filter((tag) => /^v\d+\.\d+\.\d+$/.test(tag)).slice(0, 5)]
}

// The sidebar: the tasks of docs/README.md. A name is a page, or a folder with all its
// pages. Every page of docs/ must be in one section.
const sections = {
  'Try it': ['quickstart-kind'],
  'Use one cloud': ['clouds', 'issuer', 'apis', 'providers', 'image-pulls', 'identity-later', 'verify', 'authors'],
  Install: ['install', 'gitops', 'policies', 'hosted-control-planes', 'vcluster', 'callers'],
  'Switch from another webhook': ['migrate'],
  'At night': ['troubleshooting', 'operations', 'cli'],
  Reference: ['reference', 'concepts'],
}

// pages returns the pages below a folder of docs/, without ".md". README comes first.
function pages(folder = '') {
  return readdirSync(join(root, 'docs', folder), { withFileTypes: true })
    .flatMap((e) => {
      const name = join(folder, e.name)
      return e.isDirectory() ? pages(name) : name.endsWith('.md') ? [name.slice(0, -3)] : []
    })
    .sort((a, b) => isIndex(b) - isIndex(a) || (a < b ? -1 : 1))
}

const isIndex = (page) => /(^|\/)README$/.test(page)

// index is the name of a page of docs/ on the site, where README is the index of its folder.
// The list of all pages is "docs", because the index of the site is the home page.
export const index = (page) => page.replace(/^README(?=\.md$|$)/, 'docs').replace(/\/README(?=\.md$|$)/, '/index')

// place returns the place of a file on the site.
export const place = (file) => (file === 'README.md' ? 'index.md' : index(file.slice('docs/'.length)))

// title returns the first heading of a page, as plain text.
export function title(page) {
  const heading = /^# (.+)$/m.exec(readFileSync(join(root, 'docs', page + '.md'), 'utf8'))
  if (!heading) throw new Error(`docs/${page}.md has no heading: begin the page with "# Title"`)
  return heading[1].replace(/[`*]/g, '').replace(/\[(.*?)\]\(.*?\)/g, '$1')
}

const item = (page) => ({ text: title(page), link: '/' + index(page).replace(/(^|\/)index$/, '$1') })

// sidebar returns the sections with their pages. It throws an error that lists pages
// without a section.
export function sidebar() {
  const left = new Set(pages().filter((page) => page !== 'README'))
  const take = (name) => {
    const found = [...left].filter((page) => page === name || page.startsWith(name + '/'))
    found.forEach((page) => left.delete(page))
    const own = found.filter((page) => page === name || page === name + '/README')
    const items = found.filter((page) => !own.includes(page)).map(item)
    if (items.length === 0) return own.map(item)
    const folder = own.length ? item(own[0]) : { text: name[0].toUpperCase() + name.slice(1) }
    return [{ ...folder, items, ...(items.length > 4 && { collapsed: true }) }]
  }
  const groups = Object.entries(sections).map(([text, names]) => ({ text, items: names.flatMap(take) }))
  if (left.size) throw new Error(`site/.vitepress/pages.mjs has no section for ${[...left].join(', ')}: add each to a section`)
  return groups.filter((group) => group.items.length)
}

// resolve returns the link of a page for the site, and the page that it leads to. file is
// the path of the page with the link href. README.md and docs/ are on the site; all other
// files are in the repository, at ref.
export function resolve(file, href, ref) {
  if (/^([a-z][a-z+.-]*:|\/\/|#)/i.test(href)) return { href }
  const [, path, hash] = /^([^#]*)(.*)$/.exec(href)
  const target = join(dirname(file), decodeURI(path))
  if (target.startsWith('..') || !existsSync(join(root, target))) throw new Error(`${file}: got no file for the link ${href}`)
  if (target === 'README.md') return { href: '/' + place(target) + hash }
  if (target.startsWith('docs/') && target.endsWith('.md')) return { href: '/' + place(target) + hash, page: target.slice('docs/'.length, -3) }
  return { href: `${repository}/${statSync(join(root, target)).isDirectory() ? 'tree' : 'blob'}/${ref}/${target}${hash}` }
}

// anchor returns the anchor of a heading on GitHub, which the links of the pages have.
export const anchor = (heading) =>
  heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

// home returns the top of the home page, which is the top of README.md: the name, a title,
// what it is in one sentence, a line of links, which are the buttons, and a picture.
export function home(ref) {
  const top = /^# (.+): (.+)\n\n(.+)\n\n\*\*(\[.+)\*\*\n\n!\[(.+)\]\((.+)\)\n/.exec(readFileSync(join(root, 'README.md'), 'utf8'))
  if (!top) throw new Error('README.md: want at its top "# NAME: TITLE", one line of text, a line "**[TEXT](LINK) · ...**" and a picture')
  const [, name, text, tagline, links, alt, picture] = top
  const actions = [...links.matchAll(/\[(.+?)\]\((.+?)\)/g)].map(([, text, href], i) => {
    const link = resolve('README.md', href, ref).href.replace(/(index)?\.md(?=#|$)/, (_, isIndex) => (isIndex ? '' : '.html'))
    return { text, link, theme: i ? 'alt' : 'brand' }
  })
  return { name, text, tagline, actions, image: { src: inline(picture), alt } }
}

// inline returns a picture as a URL that contains it.
export const inline = (file) => 'data:image/svg+xml;base64,' + readFileSync(join(root, file)).toString('base64')
