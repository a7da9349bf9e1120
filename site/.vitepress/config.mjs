// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// VitePress builds README.md, as the home page, and docs/ as they are. Environment variables:
//   SITE_VERSION  the version of the pages: "main", which is the default, or a tag
//   SITE_BASE     the path of the site on its server, by default "/"
//   SITE_OUT      the folder that the site is written to, by default bin/site
import { join, relative } from 'node:path'
import { defineConfig } from 'vitepress'
import { anchor, home, inline, place, published, repository, resolve, root, sidebar, title, versions } from './pages.mjs'

const version = process.env.SITE_VERSION || 'main'
const hero = home(version)
const icon = inline('charts/lanyard/icon.svg')

// links changes the links of a page to the links of the site. The text of a link that is
// the name of a page becomes the title of the page.
function links(md) {
  md.core.ruler.push('lanyard-links', ({ tokens, env }) => {
    const file = relative(root, env.realPath ?? env.path)
    // The top of the home page is its hero: a heading and three paragraphs, of three tokens each.
    if (file === 'README.md') tokens.splice(0, 12)
    for (const { children } of tokens.filter((t) => t.children)) {
      children.forEach((token, i) => {
        if (token.type !== 'link_open') return
        const { href, page } = resolve(file, token.attrGet('href'), version)
        token.attrSet('href', href)
        if (page && /^[\w/.-]+\.md$/.test(children[i + 1].content)) children[i + 1].content = title(page)
      })
    }
  })
}

// resolveId resolves the imports of the pages here, because no folder above them has
// node_modules.
function resolveId(id, importer, options) {
  if (/^vue(\/|$)/.test(id) && importer && !relative(root, importer).startsWith('site')) return this.resolve(id, import.meta.filename, options)
}

export default defineConfig({
  srcDir: '..',
  srcExclude: ['!(docs)/**/*', '!(README).md'],
  outDir: join(root, process.env.SITE_OUT || 'bin/site'),
  cacheDir: join(root, 'bin/site-cache'),
  base: process.env.SITE_BASE || '/',
  rewrites: place,
  lang: 'en',
  title: 'Lanyard',
  description: hero.tagline,
  head: [
    ['link', { rel: 'icon', href: icon }],
    ['meta', { property: 'og:title', content: `${hero.name}: ${hero.text}` }],
    ['meta', { property: 'og:description', content: hero.tagline }],
  ],
  transformPageData: (page) => page.filePath === 'README.md' && { title: `${hero.name}: ${hero.text}`, titleTemplate: ':title', frontmatter: { layout: 'home', hero } },
  vite: { plugins: [{ name: 'lanyard-vue', enforce: 'pre', resolveId }] },
  markdown: { anchor: { slugify: anchor }, config: links },
  themeConfig: {
    logo: icon,
    search: { provider: 'local', options: { detailedView: true } },
    outline: [2, 3],
    sidebar: sidebar(),
    nav: [
      { text: 'Documentation', link: '/docs' },
      { text: version, items: versions().map((v) => ({ text: v, link: published(v), target: '_self', noIcon: true })) },
    ],
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: version === 'main' ? { pattern: `${repository}/edit/main/:path`, text: 'Edit this page' } : undefined,
  },
})
